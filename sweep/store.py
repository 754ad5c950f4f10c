"""Where a sweep lives: one Optuna study per shape in a storage that several machines may share; SQLite by default.

Only finished trials are stored, each in one transaction with everything that was measured: whatever ends the process, the
next one finds whole trials and measures again what was running.
"""

from __future__ import annotations

import hashlib
import json
import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import TrialState, create_trial
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from sweep.config import SweepConfig
from sweep.errors import OtherStudy, StorageUnreachable
from sweep.record import Record, record_from
from sweep.variant import Shape, Variant

IDENTITY = "identity"


def default_storage(folder: Path) -> str:
    """The URL of the study file below a repository."""
    folder = folder / "results" / "sweep"
    folder.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{folder / 'studies.sqlite'}"


class Store:
    """A storage. Raises StorageUnreachable, here and in what it opens."""

    def __init__(self, url: str, config: SweepConfig):
        optuna.logging.set_verbosity(logging.ERROR)
        self.url, self.config = url, config
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._storage = optuna.storages.RDBStorage(url)
        except (SQLAlchemyError, ImportError, ValueError, OSError, RuntimeError) as error:
            raise StorageUnreachable(_without_password(url), _reason(error)) from None

    @property
    def shown_url(self) -> str:
        """The URL without a password."""
        return _without_password(self.url)

    def study(self, name: str, identity: Mapping[str, str], restart: bool = False) -> StoredStudy:
        """The study of a name, made if it is new. `identity`: the conditions under which its times hold.

        Raises OtherStudy if it was made under others; `restart` forgets it instead.
        """
        try:
            if restart and name in optuna.get_all_study_names(self._storage):
                optuna.delete_study(study_name=name, storage=self._storage)
            made = optuna.create_study(storage=self._storage, study_name=name, load_if_exists=True)
        except SQLAlchemyError as error:
            raise StorageUnreachable(_without_password(self.url), _reason(error)) from None
        study = StoredStudy(made, self)
        known = study.get(IDENTITY)
        if known is None:
            study.set(IDENTITY, dict(identity))
        elif differences := _differences(known, identity):
            raise OtherStudy(name, differences)
        return study


class StoredStudy:
    """One shape's finished trials, and the facts kept beside them."""

    def __init__(self, study: optuna.Study, store: Store):
        self._study, self._store = study, store
        self.name = study.study_name

    def records(self) -> list[Record]:
        """Every finished trial, of every machine, in order."""
        trials = self._guarded(lambda: self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.FAIL)))
        return [record_from(trial.user_attrs["record"]) for trial in trials if "record" in trial.user_attrs]

    def add(self, record: Record) -> None:
        """Store a finished trial."""
        attributes = {"record": record.to_json()}
        if record.median_ns is None:
            trial = create_trial(state=TrialState.FAIL, user_attrs=attributes)
        else:
            params, distributions = self._params(record.variant)
            trial = create_trial(value=record.median_ns, params=params, distributions=distributions, user_attrs=attributes)
        self._guarded(lambda: self._study.add_trial(trial))

    def get(self, key: str) -> Any:
        """A fact of the study; None if it is not there."""
        return self._guarded(lambda: self._study.user_attrs.get(key))

    def set(self, key: str, value: Any) -> None:
        """Keep a fact."""
        self._guarded(lambda: self._study.set_user_attr(key, value))

    def _params(self, variant: Variant) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
        """For Optuna's own tools; this package reads the record."""
        backends = self._store.config.backends
        params: dict[str, Any] = {"backend": variant.backend}
        distributions: dict[str, BaseDistribution] = {"backend": CategoricalDistribution(list(backends))}
        for name, choices in backends[variant.backend].params.items():
            params[f"{variant.backend}.{name}"] = variant.params[name]
            distributions[f"{variant.backend}.{name}"] = CategoricalDistribution(choices)
        return params, distributions

    def _guarded(self, call: Any) -> Any:
        try:
            return call()
        except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
            raise StorageUnreachable(_without_password(self._store.url), _reason(error)) from None


def study_name(problem: str, label: str, shape: Shape) -> str:
    """problem/device/shape"""
    return f"{problem}/{label}/{shape}"


def _differences(known: Mapping[str, str], present: Mapping[str, str]) -> list[str]:
    pairs = {key: (known.get(key), present.get(key)) for key in {**known, **present}}
    return [f"{key} was {_short(old)} and is {_short(new)}" for key, (old, new) in pairs.items() if old != new]


def _short(value: str | None) -> str:
    text = "unknown" if value is None else str(value)
    return text[:12] if len(text) == 64 else text


def _reason(error: BaseException) -> str:
    if isinstance(error, ArgumentError | NoSuchModuleError):
        return f"not a database URL such as sqlite:///FILE: {error}"
    cause = getattr(error, "orig", None) or error.__cause__ or error
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]


def _without_password(url: str) -> str:
    head, at, tail = url.rpartition("@")
    scheme, mark, user = head.partition("://")
    return f"{scheme}{mark}{user.partition(':')[0]}:***@{tail}" if at and ":" in user else url


def digest_of(value: Any) -> str:
    """A SHA-256 of any JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
