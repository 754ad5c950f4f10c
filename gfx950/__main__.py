"""`python -m gfx950`. A package of the extra that is missing is told in one line."""

import sys

EXTRA = ("elftools", "msgpack", "ml_dtypes")

if __name__ == "__main__":
    try:
        from gfx950.cli import main
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] not in EXTRA:
            raise
        install = f"{sys.executable} -m pip install -e '.[gfx950]'"
        print(f"gfx950: {missing.name} is not installed; run `{install}`", file=sys.stderr)
        sys.exit(2)
    sys.exit(main())
