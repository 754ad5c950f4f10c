"""`#!POPCORN` directives: only in the first comment block; unknown and repeated ones are errors."""

import pytest

from popcorn.directives import DirectiveError, Directives, parse_directives


def test_both_directives_in_either_comment_style():
    assert parse_directives("#!POPCORN leaderboard amd-mixed-mla\n#!POPCORN gpu MI355X\n\nx = 1\n") == Directives(
        "amd-mixed-mla", "MI355X"
    )
    assert parse_directives("// a kernel\n//!POPCORN gpus H100\n") == Directives(None, "H100")


def test_the_block_ends_at_the_first_line_that_is_no_comment():
    assert parse_directives("\n#!POPCORN gpu H100\n") == Directives()
    assert parse_directives("import torch\n#!POPCORN nonsense\n") == Directives()
    assert parse_directives(" #!POPCORN gpu H100\n") == Directives()
    assert parse_directives("#!/usr/bin/python3\n# text\n#\n#!POPCORN gpu H100\n").gpu == "H100"
    assert parse_directives("") == Directives()


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("#!POPCORN", "'nothing' is not a directive"),
        ("#!POPCORN team red", "'team' is not a directive; known are"),
        ("#!POPCORN gpu", "takes one name, not 0"),
        ("#!POPCORN gpu MI300 MI355X", "takes one name, not 2"),
        ("#!POPCORN gpu A\n#!POPCORN gpus B", "line 3: a second gpu directive"),
        ("#!POPCORN leaderboard a\n#!POPCORN leaderboard a", "line 3: a second leaderboard directive"),
    ],
)
def test_faults_name_the_line(line, fault):
    with pytest.raises(DirectiveError, match=fault) as caught:
        parse_directives(f"# first\n{line}\n", "mine.py")
    assert "mine.py, line " in str(caught.value)
