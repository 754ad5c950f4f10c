"""The order of the corpus, what is run again, and what a run that was cut short leaves behind; entries are made up."""

import argparse
import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from exploits.corpus import Entry, load_corpus
from exploits.findings import Finding, Outcome
from exploits.trials import Rules, Trial
from scripts import integrity
from scripts.integrity import chosen, investigated, main, missing, options

CORPUS = load_corpus()
PASSES = Trial("pass", True, 1000.0, witnessed=("file",), containment=("process",), seconds=1.5)


class FakeBench:
    """Remembers what it was asked for."""

    device = "made up"

    def __init__(self):
        self.rules, self.asked = Rules(), []
        self.lock = threading.Lock()

    def honest_ns(self, entry):
        with self.lock:
            self.asked.append("honest")
        return 1000.0

    def harness(self, entry, off=()):
        with self.lock:
            self.asked.append(entry.name)
        return PASSES


def made_up(name: str, kind: str = "controls", **fields) -> Entry:
    return Entry(Path(f"{kind}/{name}.py"), kind, "Text.", **fields)


SLY = made_up("sly", "cheats", goal="time", defences=("limits",), contract="T1")
PLAIN, GREEDY = made_up("plain"), made_up("greedy", alone=True)


@pytest.fixture
def bench(monkeypatch) -> FakeBench:
    made = FakeBench()
    monkeypatch.setattr(integrity, "Bench", lambda rules: made)
    monkeypatch.setattr(integrity, "load_corpus", lambda: [SLY, PLAIN, GREEDY])
    return made


def wanted(*words: str) -> argparse.Namespace:
    return options(list(words))


def test_what_takes_long_comes_first():
    entries = chosen(CORPUS, wanted("--gpu"))
    slow = [entry.timeout_s != Entry.timeout_s for entry in entries]
    assert any(slow)
    assert slow == sorted(slow, reverse=True)


def test_what_tells_most_comes_next():
    every = chosen(CORPUS, wanted("--gpu"))
    entries = [entry for entry in every if entry.timeout_s == Entry.timeout_s]
    sorts = [(entry.needs == "gpu", entry.timed, entry.kind) for entry in entries]
    gpu = sum(entry.needs == "gpu" for entry in entries)
    assert all(needs for needs, _, _ in sorts[:gpu])
    rest = sorts[gpu:]
    order = [next(i for i, (_, timed, kind) in enumerate(rest) if test(timed, kind)) for test in (
        lambda timed, kind: timed,
        lambda timed, kind: kind == "controls",
        lambda timed, kind: kind == "wrong",
        lambda timed, kind: kind == "cheats" and not timed,
    )]  # fmt: skip
    assert order == sorted(order)
    assert {entry.name for entry in every} == {entry.name for entry in CORPUS if entry.needs != "cpu"}


def test_cases_of_a_gpu_are_for_a_gpu():
    entry = made_up("short", cases=("seed: 1",), gpu_cases=("seed: 2",))
    assert chosen([entry], wanted())[0].cases == ("seed: 1",)
    assert chosen([entry], wanted("--gpu"))[0].cases == ("seed: 2",)
    assert chosen([PLAIN], wanted("--gpu"))[0].cases == PLAIN.cases


@pytest.mark.parametrize("needs", ["gpu", "any"])
def test_by_what_they_need(needs):
    assert {entry.needs for entry in chosen(CORPUS, wanted("--gpu", "--needs", needs))} == {needs}


def test_references_come_first_and_once(bench):
    again = replace(SLY, path=Path("cheats/slyer.py"))
    found = list(investigated(bench, [SLY, again, PLAIN], wanted(), 1))
    assert bench.asked[:2] == ["honest", "sly"]
    assert len(found) == 3


def test_on_a_crowded_gpu_nothing_begins_before_the_references_are_there(bench):
    others = [replace(SLY, path=Path(f"cheats/sly{i}.py"), cases=(f"seed: {i}",)) for i in range(3)]
    list(investigated(bench, [PLAIN, *others], wanted("--gpu"), 3))
    assert bench.asked[:3] == ["honest"] * 3


def test_entries_that_can_only_run_alone_come_last(bench):
    found = list(investigated(bench, [GREEDY, PLAIN], wanted(), 4))
    assert [finding.entry.name for finding in found] == ["plain", "greedy"]


def test_no_entry_begins_too_late(bench):
    assert not list(investigated(bench, [PLAIN, GREEDY], wanted("--limit-s", "1e-9"), 2))
    assert bench.asked == []


def test_what_was_found_is_written_as_it_comes(bench, tmp_path, monkeypatch, capsys):
    path = tmp_path / "found.json"

    def harness(entry, off=()):
        if entry is GREEDY:
            raise KeyboardInterrupt
        return PASSES

    monkeypatch.setattr(bench, "harness", harness)
    with pytest.raises(KeyboardInterrupt):
        main(["--json", str(path)])
    assert [found["name"] for found in json.loads(path.read_text())["findings"]] == ["sly", "plain"]
    assert "[  2/3," in capsys.readouterr().out


def test_a_run_goes_on_where_it_was_cut_short(bench, tmp_path, capsys):
    path = tmp_path / "found.json"
    main(["--json", str(path), "--only", "plain"])
    before = json.loads(path.read_text())["findings"]
    bench.asked.clear()
    assert main(["--json", str(path), "--resume"]) == 0
    assert "plain" not in bench.asked
    after = json.loads(path.read_text())["findings"]
    assert [found["name"] for found in after] == ["sly", "plain", "greedy"]
    assert before[0] in after
    assert "2 passes" in capsys.readouterr().out


def test_an_earlier_miss_is_not_forgotten(bench, tmp_path):
    path = tmp_path / "found.json"
    fast = replace(PASSES, time_ns=1.0)
    bench.harness = lambda entry, off=(): fast if entry is SLY else PASSES
    assert main(["--json", str(path), "--only", "sly"]) == 1
    assert main(["--json", str(path), "--resume"]) == 1


def test_a_named_entry_is_run_again(bench, tmp_path):
    path = tmp_path / "found.json"
    main(["--json", str(path)])
    bench.asked.clear()
    main(["--json", str(path), "--resume", "--only", "plain"])
    assert bench.asked == ["plain"]
    assert len(json.loads(path.read_text())["findings"]) == 3


def test_proofs_that_are_asked_for_and_missing_are_made():
    known = [Finding(SLY, PASSES, Outcome.CAUGHT), Finding(PLAIN, PASSES, Outcome.PASSES)]
    assert missing([SLY, PLAIN], known, wanted()) == []
    assert missing([SLY, PLAIN], known, wanted("--prove")) == [SLY]
    assert missing([SLY, PLAIN], [replace(known[0], proof="succeeds"), known[1]], wanted("--prove")) == []


def test_a_record_of_other_rules_is_left_alone(bench, tmp_path):
    path = tmp_path / "found.json"
    main(["--json", str(path)])
    before = path.read_text()
    bench.rules = Rules(mode="leaderboard")
    with pytest.raises(SystemExit, match="write to another file"):
        main(["--json", str(path), "--resume"])
    assert path.read_text() == before


def test_resume_needs_a_file(capsys):
    with pytest.raises(SystemExit):
        options(["--resume"])
    assert "--json FILE" in capsys.readouterr().err
