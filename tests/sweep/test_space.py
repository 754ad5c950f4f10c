"""configs/sweep.yml: the file of the repository, and every way in which one can be wrong; spaces and their constraints."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from simulated import OTHER, PRESET, SHAPES, SPACE

from sweep.config import load_config
from sweep.constraints import Constraint
from sweep.errors import SpaceError
from sweep.space import Space
from sweep.variant import Shape, Variant

ROOT = Path(__file__).resolve().parent.parent.parent
OFFICIAL = [Shape(batch, 1, kv_len, 16) for batch in (4, 32, 64, 256) for kv_len in (1024, 8192)]
MINIMAL = {
    "shape": {"keys": ["b", "q", "k", "h"], "defaults": {"h": 16}},
    "presets": {
        "quick": {
            "trials": 4, "batch": 2, "race_samples": [2], "refine_rounds": 1, "finalists": 1, "final_samples": 3,
            "duel_samples": 9,
        }
    },
    "backends": {"x": {"devices": ["cpu"], "params": {"size": [1, 2, 4]}, "constraints": ["size <= kv_len"]}},
}  # fmt: skip


def config_of(tmp_path, **changes):
    """The minimal file with values at dotted paths replaced; None takes a key away."""
    data = yaml.safe_load(yaml.safe_dump(MINIMAL))
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = data
        for parent in parents:
            place = place[parent]
        if value is None:
            del place[last]
        else:
            place[last] = value
    (tmp_path / "sweep.yml").write_text(yaml.safe_dump(data))
    return load_config(tmp_path / "sweep.yml")


def test_the_repository_s_spaces_hold_settings_for_every_official_shape():
    config = load_config(ROOT / "configs" / "sweep.yml")
    assert set(config.presets) >= {"quick", "normal", "exhaustive", "remote"}
    for preset in config.presets.values():
        for backend in config.backends.values():
            for shape in (OFFICIAL[0], OFFICIAL[-1]):
                assert len(Space([backend], preset, shape)) > 0


@pytest.mark.parametrize("label", ["H200", "gfx950"])
def test_the_table_s_settings_lie_in_the_spaces(label):
    """A sweep that starts from the present table must be able to say that it is the best."""
    config = load_config(ROOT / "configs" / "sweep.yml")
    table = yaml.safe_load((ROOT / "configs" / "dispatch.yml").read_text())["amd-mixed-mla"].get(label, [])
    for entry in table:
        space = Space([config.backends[entry["backend"]]], config.presets["normal"], Shape(*entry["shape"]))
        values = {name: choices[0] for name, choices in config.backends[entry["backend"]].params.items()}
        defaults = {"row_blocks": 1, "tile": 32, "buffers": 2, "last_arriver": False, "setprio": False}
        full = {**values, **{k: v for k, v in defaults.items() if k in values}, **entry["params"]}
        assert space.exact(Variant(entry["backend"], full)) is not None, entry


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backends__x__params__size": []}, "size: []; give a list of different values"),
        ({"backends__x__params__size": [1, 1]}, "give a list of different values"),
        ({"backends__x__params__size": 3}, "give a list of different values"),
        ({"backends__x__params__batch": [1]}, "names a part of the shape"),
        ({"backends__x__params": None}, "backend x: params: expected keys and values"),
        ({"backends__x__devices": []}, "devices: say which exist"),
        ({"backends__x__devises": ["cpu"]}, "unknown key 'devises'; known are devices, params"),
        ({"backends__x__constraints": ["size <"]}, "`size <` is no expression"),
        ({"backends__x__constraints": ["sise < 2"]}, "unknown name `sise`; known are"),
        ({"backends__x__constraints": ["__import__('os')"]}, "Call is not allowed"),
        ({"backends__x__constraints": ["size.real > 1"]}, "Attribute is not allowed"),
        ({"backends__x__constraints": ["[s for s in [1]]"]}, "is not allowed"),
        ({"presets__quick__duel_samples": 3}, "duel_samples is 3; a ratio has no interval below 6"),
        ({"presets__quick__trials": 0}, "counts and minutes must be positive"),
        ({"presets__quick__race_samples": []}, "race_samples a list of counts"),
        ({"presets__quick__finalists": None}, "missing"),
        ({"presets__quick__only": {"x": {"size": [3]}}}, "size: [3]; choose from [1, 2, 4]"),
        ({"presets__quick__only": {"y": {}}}, "unknown key 'y'"),
        ({"shape__keys": ["b"]}, "shape.keys: ['b']"),
        ({"backends": None}, "backends: expected keys and values"),
    ],
)
def test_a_file_that_is_wrong_is_named_in_one_line(tmp_path, changes, message):
    with pytest.raises(SpaceError) as error:
        config_of(tmp_path, **changes)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["{", "- a", "\x00", "a: [1"])
def test_what_is_no_yaml_is_said(tmp_path, text):
    (tmp_path / "sweep.yml").write_text(text)
    with pytest.raises(SpaceError, match=r"sweep\.yml"):
        load_config(tmp_path / "sweep.yml")
    with pytest.raises(SpaceError, match="No such file"):
        load_config(tmp_path / "other.yml")


def test_contradictory_constraints_say_what_each_leaves(tmp_path):
    config = config_of(tmp_path, backends__x__constraints=["size > 2", "size < 2"])
    with pytest.raises(SpaceError) as error:
        Space(list(config.backends.values()), config.presets["quick"], SHAPES[0])
    assert "of 3 combinations none meets every constraint" in str(error.value)
    assert "`size > 2` leaves 1, `size < 2` leaves 1" in str(error.value)


def test_a_constraint_that_cannot_be_computed_is_named(tmp_path):
    config = config_of(tmp_path, backends__x__constraints=["kv_len // (size - 1) > 2"])
    with pytest.raises(SpaceError, match="cannot be computed: integer division or modulo by zero"):
        Space(list(config.backends.values()), config.presets["quick"], SHAPES[0])


def test_too_many_combinations_are_refused(tmp_path):
    numbers = list(range(130))
    config = config_of(tmp_path, backends__x__params={"a": numbers, "b": numbers, "c": numbers}, backends__x__constraints=[])
    with pytest.raises(SpaceError, match="2,197,000 combinations"):
        Space(list(config.backends.values()), config.presets["quick"], SHAPES[0])


def test_a_case_without_the_keys_is_refused(tmp_path):
    with pytest.raises(SpaceError, match="has no number b, q"):
        config_of(tmp_path).shape_of({"k": 3})


@given(st.tuples(*[st.integers(0, len(choices) - 1) for choices in SPACE.params.values()]), st.integers(0, 30))
def test_the_nearest_setting_is_valid_free_and_nearest(point, taken_count):
    grid = Space([SPACE], PRESET, Shape(4, 1, 256, 16)).grids["sim"]
    taken = {grid.variant(row) for row in grid.points[:taken_count].tolist()}
    found = grid.nearest(point, taken)
    assert found is not None
    assert found not in taken
    assert grid.point(found.params) is not None
    wanted = tuple(point)
    if wanted in set(map(tuple, grid.points.tolist())) and grid.variant(wanted) not in taken:
        assert found == grid.variant(wanted)


def test_every_setting_is_reached_over_neighbours():
    """Or refinement could not leave a corner of the space."""
    for shape in SHAPES:
        space = Space([SPACE, OTHER], PRESET, shape)
        for grid in space.grids.values():
            seen = {grid.variant(grid.points[0].tolist())}
            frontier = list(seen)
            while frontier:
                frontier = [v for u in frontier for v in space.neighbours(u) if v not in seen and not seen.add(v)]
            assert len(seen) == len(grid)


def test_constraints_allow_arithmetic_and_logic():
    names = ("a", "b")
    assert Constraint("a in (1, 2) and not b > max(a, 3) or a % 2 == b // 2", names, "x").holds({"a": 1, "b": 3})
    assert not Constraint("(a if b else 0) > 5", names, "x").holds({"a": 9, "b": 0})
