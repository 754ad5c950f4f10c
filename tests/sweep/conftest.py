"""Every test of this folder needs the packages of the extra `sweep`."""

import pytest

pytest.importorskip("optuna", reason="the extra `sweep` is not installed")
pytest.importorskip("ruamel.yaml", reason="the extra `sweep` is not installed")
