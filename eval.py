"""Evaluate a submission.

python eval.py --mode benchmark ...     the command line, see --help
python eval.py MODE CASEFILE            the popcorn pipe protocol: results go to the descriptor POPCORN_FD
"""

import sys


def main(argv: list[str]) -> int:
    """The exit code of either command line."""
    if argv and not argv[0].startswith("-"):
        from harness.pipe import main as pipe

        return pipe(argv)
    from harness.cli import main as command_line

    return command_line(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
