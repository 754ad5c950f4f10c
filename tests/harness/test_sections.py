"""Lines of a generated file are named by the files it was made of."""

import pytest

from harness.sections import SectionMap

TEXT = """#!POPCORN leaderboard x
# >>> kernels/a.py
import os
x = 1
# >>> kernels/b.py
y = 2
"""


@pytest.fixture
def sections(tmp_path) -> SectionMap:
    path = tmp_path / "submission.py"
    path.write_text(TEXT)
    return SectionMap.of_file(path)


@pytest.mark.parametrize(
    ("line", "place"),
    [(1, "submission.py:1"), (2, "submission.py:2"), (3, "kernels/a.py:1"), (4, "kernels/a.py:2"), (6, "kernels/b.py:1")],
)
def test_locate(sections, line, place):
    assert sections.locate("submission.py", line) == place


def test_other_files_keep_their_lines(sections):
    assert sections.locate("task.py", 4) == "task.py:4"


def test_crash_dump_keeps_the_authors_frames(sections):
    here = sections.path.parent
    dump = f"""said before
Fatal Python error: Segmentation fault

Current thread 0x00007f (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "{here}/submission.py", line 4 in deep
  File "{here}/submission.py", line 6 in custom_kernel
  File "{here}.runtime/harness/worker.py", line 91 in _load

Extension modules: numpy (total: 1)
"""
    assert sections.shorten_crash(dump) == "said before\n  kernels/b.py:1, in custom_kernel\n  kernels/a.py:2, in deep"


def test_plain_output_is_kept(sections):
    assert sections.shorten_crash("some text\n") == "some text\n"
