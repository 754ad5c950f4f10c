"""`python -m leaderboard.web.gfx950_job PLAN FOLDER`: compile FOLDER/source.hip behind the jail's PLAN; the reports as JSON."""

import json
import sys
from pathlib import Path

from gfx950.errors import Gfx950Error
from gfx950.report import report
from gfx950.toolchain import compile_hip
from harness.jail import Plan, enter


def main() -> int:
    """0 with the reports on stdout, 1 with the reason on stderr."""
    enter(Plan.of_text(sys.argv[1]))
    try:
        reports = report(compile_hip(Path(sys.argv[2]) / "source.hip"))
    except Gfx950Error as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps([each.to_json() for each in reports]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
