"""A competition's YAML."""

from datetime import UTC, datetime

import pytest

from popcorn.competition import CompetitionError, CompetitionProblem, load_competition, parse_competition

TEXT = """\
name: MLA days
deadline: "2026-03-14"
description: Decode attention.
problems:
  - directory: amd/mixed-mla
    name: amd-mixed-mla
    deadline: "2026-03-15 03:00"
    gpus: [MI355X]
  - directory: flash_mla
    name: flash-mla
"""


def test_every_key():
    competition = parse_competition(TEXT, "c.yaml")
    assert (competition.name, competition.description) == ("MLA days", "Decode attention.")
    assert competition.deadline == datetime(2026, 3, 14, tzinfo=UTC)
    assert competition.problems == (
        CompetitionProblem("amd-mixed-mla", "amd/mixed-mla", datetime(2026, 3, 15, 3, tzinfo=UTC), ("MI355X",)),
        CompetitionProblem("flash-mla", "flash_mla", datetime(2026, 3, 14, tzinfo=UTC), ()),
    )


@pytest.mark.parametrize("text", ["2026-03-15", '"2026-03-15 00:00"', "2026-03-15 00:00", "2026-03-15 00:00:00"])
def test_deadlines_quoted_or_not(text):
    competition = parse_competition(TEXT.replace('"2026-03-14"', text), "c.yaml")
    assert competition.deadline == datetime(2026, 3, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("old", "new", "line", "fault"),
    [
        ('"2026-03-14"', "soon", 2, "must be a UTC time"),
        ('"2026-03-14"', "2026", 2, "must be text"),
        ("name: flash-mla", "name: amd-mixed-mla", 9, "a second problem named"),
        ("directory: flash_mla", "directory: /flash_mla", 9, "must be relative"),
        ("  - directory: flash_mla\n    name", "  - name", 9, "missing key 'directory'"),
        ("gpus: [MI355X]", "gpu: MI355X", 8, "unknown key 'gpu'; known are deadline, directory, gpus, name"),
        ("description: ", "prize: ", 3, "unknown key 'prize'"),
    ],
)
def test_faults_name_their_line(old, new, line, fault):
    assert old in TEXT
    with pytest.raises(CompetitionError, match=rf"^c\.yaml, line {line}: .*{fault}"):
        parse_competition(TEXT.replace(old, new), "c.yaml")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(CompetitionError, match="cannot be read"):
        load_competition(tmp_path / "c.yaml")
    (tmp_path / "c.yaml").write_text(TEXT)
    assert load_competition(tmp_path / "c.yaml") == parse_competition(TEXT, "c.yaml")
