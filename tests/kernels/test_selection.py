"""What every problem's dispatch is made of: nearest tuned entry, forced backends, clear refusals, the cache of plans."""

import math
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels import selection
from kernels.selection import BACKEND_VARIABLE, BackendError, Selection, device_labels, distance

CPU = torch.device("cpu")
SIZES = st.lists(st.integers(0, 1 << 20), min_size=3, max_size=3)


class Data(NamedTuple):
    tensor: torch.Tensor
    shape: tuple


def of_shape(*shape):
    return Data(torch.zeros(1), shape)


class Recording:
    """A backend that returns its name and parameters, and keeps count."""

    def __init__(self, name, reason=None):
        self.name, self.reason, self.asked, self.planned = name, reason, 0, 0

    def available(self, device):
        self.asked += 1
        return self.reason

    def default_params(self, shape, device):
        return {"a": 1, "b": 2}

    def plan(self, data, params):
        self.planned += 1
        return lambda data: (self.name, params)


def select(*backends, **options):
    table = options.pop("table", {})
    return Selection(backends, table, lambda data: data.shape, lambda data: data.shape, **options)


def entry(*shape, backend="first", **params):
    return {"shape": list(shape), "backend": backend, "params": params}


def tuned(table, shape, labels, backend="first"):
    """The parameters of the entry that is found."""
    found = select(Recording(backend), table=table).tuned_entry(shape, labels, [backend])
    return found and found["params"]


@pytest.fixture(autouse=True)
def nothing_forced(monkeypatch):
    monkeypatch.delenv(BACKEND_VARIABLE, raising=False)


def test_the_first_available_backend_serves_with_its_defaults():
    choice = select(Recording("absent", "no GPU"), Recording("first"), Recording("second")).choose(of_shape(4))
    assert (choice.backend.name, choice.params) == ("first", {"a": 1, "b": 2})


def test_a_tuned_entry_names_the_backend_and_overrides_its_defaults():
    table = {"cpu": [entry(4, backend="absent", a=9), entry(4, backend="second", a=7)]}
    choice = select(Recording("first"), Recording("second"), Recording("absent", "no GPU"), table=table).choose(of_shape(5))
    assert (choice.backend.name, choice.params) == ("second", {"a": 7, "b": 2})


def test_the_nearest_entry_wins_and_far_ones_are_ignored():
    table = {"H200": [entry(4, 1024, of=1), entry(4, 1536, of=2), entry(64, 1024, of=3)]}
    assert tuned(table, (4, 1400), ["H200"]) == {"of": 2}
    assert tuned(table, (4, 1024), ["H200"]) == {"of": 1}
    assert tuned(table, (8, 1024), ["H200"]) == {"of": 1}
    assert tuned(table, (16, 1024), ["H200"]) is None
    assert tuned(table, (4, 1024), ["cpu"]) is None
    assert tuned(table, (4, 1024), ["H200"], "second") is None


def test_the_device_name_goes_before_its_architecture():
    table = {"sm_90": [entry(1, of="arch")], "H200": [entry(1, of="device")]}
    assert tuned(table, (1,), ["NVIDIA", "H200", "sm_90"]) == {"of": "device"}
    assert tuned(table, (1,), ["NVIDIA", "H100", "sm_90"]) == {"of": "arch"}


def test_device_labels(monkeypatch):
    class Properties:
        name, major, minor, gcnArchName = "AMD Instinct MI355X", 9, 5, "gfx950:sramecc+:xnack-"

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    assert device_labels(torch.device("cuda")) == ["AMD", "Instinct", "MI355X", "gfx950"]
    monkeypatch.setattr(Properties, "gcnArchName", "")
    assert device_labels(torch.device("cuda"))[-1] == "sm_95"
    assert device_labels(CPU) == ["cpu"]


@given(one=SIZES, other=SIZES)
def test_distance_is_one_per_factor_of_two_and_equal_both_ways(one, other):
    assert distance(one, one) == 0
    assert distance(one, other) == pytest.approx(distance(other, one))
    doubled = [2 * max(one[0], 1), *one[1:]]
    assert distance(one, doubled) == pytest.approx(1)


def test_shapes_that_differ_in_a_name_or_in_length_do_not_meet():
    assert distance(("dense", 4, 8), ("dense", 4, 16)) == 1
    assert distance(("dense", 4, 8), ("v32", 4, 8)) == math.inf
    with pytest.raises(ValueError, match="shorter"):
        distance((4, 8), (4,))


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("hopper", "KERNELPROOF_BACKEND=hopper: no such backend; choose one of auto, first, absent"),
        ("absent", "KERNELPROOF_BACKEND=absent: no GPU; use auto, which takes what this machine has"),
    ],
)
def test_a_backend_that_cannot_be_forced_is_refused_with_the_remedy(wanted, message, monkeypatch):
    monkeypatch.setenv(BACKEND_VARIABLE, wanted)
    with pytest.raises(BackendError) as raised:
        select(Recording("first"), Recording("absent", "no GPU")).plan_for(of_shape(4))
    assert str(raised.value) == message


def test_a_call_that_a_backend_cannot_serve_falls_to_the_next(monkeypatch):
    table = {"cpu": [entry(4, backend="picky", a=9)]}
    backends = Recording("picky"), Recording("plain")
    some = select(*backends, table=table, unserved=lambda backend, data: "too odd" if backend.name == "picky" else None)
    assert some.choose(of_shape(4)).backend.name == "plain"
    monkeypatch.setenv(BACKEND_VARIABLE, "picky")
    with pytest.raises(BackendError) as raised:
        some.choose(of_shape(4))
    assert str(raised.value) == "KERNELPROOF_BACKEND=picky: too odd; use auto, which takes another backend here"


def test_no_backend_but_the_forced_one_is_asked(monkeypatch):
    backends = [Recording(name) for name in ("first", "second", "third")]
    monkeypatch.setenv(BACKEND_VARIABLE, "second")
    assert select(*backends).choose(of_shape(4)).backend.name == "second"
    assert [backend.asked for backend in backends] == [0, 1, 0]


def test_a_backend_forced_between_calls_serves_the_next_one(monkeypatch):
    """Plans of different forced backends do not mix, whoever keeps them."""
    chosen, plans = select(Recording("first"), Recording("second")), {}
    data = of_shape(4)
    for kept in (None, plans):
        for wanted in ("auto", "second", "first", "second"):
            monkeypatch.setenv(BACKEND_VARIABLE, wanted)
            name, _ = chosen.plan_for(data, kept)(data)
            assert name == wanted.replace("auto", "first")
    assert len(chosen.plans) == len(plans) == 3


def test_plans_are_kept_where_the_caller_says():
    backend = Recording("first")
    chosen, mine, yours = select(backend), {}, {}
    for plans in (mine, yours, mine, yours):
        chosen.plan_for(of_shape(4), plans)
    assert (backend.planned, len(mine), len(yours), len(chosen.plans)) == (2, 1, 1, 0)


def test_plans_are_kept_and_the_oldest_goes_first(monkeypatch):
    monkeypatch.setattr(selection, "MAX_PLANS", 3)
    backend = Recording("first")
    chosen = select(backend)
    inputs = [of_shape(size) for size in range(1, 5)]
    for data in (inputs[0], *inputs):
        chosen.plan_for(data)
    assert (backend.planned, len(chosen.plans)) == (4, 3)
    chosen.plan_for(inputs[-1])
    assert backend.planned == 4
    chosen.plan_for(inputs[0])
    assert (backend.planned, len(chosen.plans)) == (5, 3)


def test_the_steady_state_is_one_look_up():
    """No backend is asked, no entry looked for and nothing checked once a plan is there."""
    checked, backend = [], Recording("first")
    chosen = select(backend, check=checked.append)
    data = of_shape(4)
    plan = chosen.plan_for(data)
    assert all(chosen.plan_for(data) is plan for _ in range(3))
    assert (backend.asked, backend.planned, checked) == (1, 1, [data])


def test_what_the_check_refuses_gets_no_plan():
    def refuse(data):
        raise ValueError("too short")

    backend = Recording("first")
    chosen = select(backend, check=refuse)
    with pytest.raises(ValueError, match="too short"):
        chosen.plan_for(of_shape(4))
    assert (backend.planned, chosen.plans) == (0, {})
