"""`python -m sweep`. Nothing heavy is imported here: the processes that measure import this module too."""

import sys

EXTRA = ("optuna", "sqlalchemy", "ruamel")

if __name__ == "__main__":
    try:
        from sweep.cli import main
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] not in EXTRA:
            raise
        install = f"{sys.executable} -m pip install -e '.[sweep]'"
        print(f"error: python -m sweep needs {missing.name}; run `{install}`", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1:]))
