"""`python -m leaderboard.web.gfx950_job PLAN FOLDER`: compile FOLDER/source.hip behind the jail's PLAN; the reports as JSON."""

import json
import sys
from pathlib import Path

from gfx950.errors import Gfx950Error, ToolchainMissing, ToolchainTooOld
from harness.jail import Plan, enter

REJECTED, UNABLE = 3, 4  # exit codes that Python itself has no use for


def main() -> int:
    """0 with the reports on stdout; REJECTED with the compiler's words, or UNABLE with what this server lacks, on stderr."""
    try:  # before the jail, which may hide where packages lie
        from gfx950.report import report
        from gfx950.toolchain import compile_hip
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        return _told(UNABLE, f"this server lacks the Python package {package}; `pip install -e '.[gfx950]'` installs it there")
    enter(Plan.of_text(sys.argv[1]))
    try:
        reports = report(compile_hip(Path(sys.argv[2]) / "source.hip"))
    except (ToolchainMissing, ToolchainTooOld) as error:
        return _told(UNABLE, error)
    except Gfx950Error as error:
        return _told(REJECTED, error)
    print(json.dumps([each.to_json() for each in reports]))
    return 0


def _told(code: int, why: object) -> int:
    print(why, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
