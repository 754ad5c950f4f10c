"""Problem folders as texts, sent to other machines and laid out there again."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from people import DOUBLING, person, ranked, submit

from harness.problem import load_problem
from leaderboard import boards, queries
from leaderboard.errors import BadRequest, Conflict, NotFound
from leaderboard.problems import PackedProblem, pack_problem, problem_name, unpack_problem

ROOT = Path(__file__).parents[2]
FOLDERS = [ROOT / "configs", DOUBLING, *(path.parent for path in sorted((ROOT / "problems").glob("*/task.yml")))]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_what_arrives_is_the_same_problem(folder, tmp_path):
    packed, task = pack_problem(folder)
    problem = load_problem(unpack_problem(packed, tmp_path))
    assert problem.task == task == load_problem(folder).task
    assert (problem.directory / "cases").is_dir() is (folder / "cases").is_dir()
    again, _ = pack_problem(problem.directory)
    assert again == packed
    assert str(ROOT) not in packed.root


def test_the_name_is_what_the_submission_says_else_the_folders():
    packed = {folder.name: problem_name(folder, pack_problem(folder)[1]) for folder in FOLDERS[:2]}
    assert packed == {"configs": "amd-mixed-mla", "doubling": "doubling"}


def test_the_digest_is_of_the_content():
    packed, _ = pack_problem(DOUBLING)
    assert packed.sha256 == PackedProblem(packed.root, dict(reversed(packed.files.items()))).sha256
    assert packed.sha256 != PackedProblem(packed.root, {**packed.files, "x": ""}).sha256


parts = st.lists(st.sampled_from(["a", "..", ".", "", "b.py", "..."]), min_size=1, max_size=5).map("/".join)
escaping = parts.filter(lambda name: name.startswith("/") or ".." in name.split("/"))


@given(escaping | parts.map(lambda name: name + "\\") | parts.map(lambda name: name + "\0"))
def test_no_path_leads_out_of_the_folder(name):
    with pytest.raises(BadRequest, match="not a path below its folder"):
        unpack_problem(PackedProblem(".", {name: "x"}), Path("/nowhere"))


@pytest.mark.parametrize("root", ["..", "/", "a/../.."])
def test_nor_does_its_root(tmp_path, root):
    with pytest.raises(BadRequest, match="not a path below its folder"):
        unpack_problem(PackedProblem(root, {}), tmp_path)


def test_missing_files_are_named():
    with pytest.raises(BadRequest, match="these files do not exist"):
        pack_problem(ROOT / "tests" / "support" / "problems" / "missing_sources")
    with pytest.raises(BadRequest, match=r"task\.yml: cannot be read"):
        pack_problem(ROOT / "docs")


def competition(tmp_path: Path, name: str = "first") -> Path:
    path = tmp_path / "competition.yml"
    path.write_text(
        f"name: a contest\ndeadline: 2026-12-31\nproblems:\n"
        f"  - {{directory: {Path('problem')}, name: {name}, deadline: '2030-01-02 03:04', gpus: [H200]}}\n"
    )
    (tmp_path / "problem").symlink_to(DOUBLING)
    return path


def test_a_competition_makes_its_leaderboards(store, tmp_path):
    (plan,) = boards.read_plans(competition(tmp_path))
    with store.writing() as session:
        boards.put_board(session, plan, "tests")
    with store.reading() as session:
        board = queries.board(session, "first")
    assert board is not None
    assert (board.deadline, board.gpus) == (datetime(2030, 1, 2, 3, 4, tzinfo=UTC), ("H200",))


def test_a_changed_folder_changes_the_leaderboard_and_keeps_its_submissions(store):
    number = ranked(store, person(store, "ada"), 900.0)
    (plan,) = boards.read_plans(DOUBLING)
    changed = replace(plan, problem=PackedProblem(plan.problem.root, {**plan.problem.files, "new.py": "x"}))
    with store.writing() as session:
        boards.put_board(session, changed, "tests")
    with store.reading() as session:
        board = queries.board(session, "doubling")
        assert board is not None
        assert board.submissions == 1
        assert queries.ranking(session, "doubling", "CPU")[0].submission_id == number


@pytest.mark.parametrize("name", ["admin", "Leaderboards", "a b", "a/b", "", "x" * 65, "<b>", "-x"])
def test_names_that_addresses_cannot_hold(store, name):
    (plan,) = boards.read_plans(DOUBLING)
    with pytest.raises(BadRequest, match="cannot be a leaderboard's name"), store.writing() as session:
        boards.put_board(session, replace(plan, name=name), "tests")


def test_deleting(store):
    submit(store, person(store, "ada"))
    with store.writing() as session:
        with pytest.raises(NotFound):
            boards.delete_board(session, "nothing", "tests", force=True)
        with pytest.raises(Conflict, match="has 1 submissions"):
            boards.delete_board(session, "doubling", "tests", force=False)
        boards.delete_board(session, "Doubling", "tests", force=True)
    with store.reading() as session:
        assert queries.leaderboards(session) == []
        assert queries.submissions(session) == []
