"""`python -m leaderboard COMMAND`: serve, join as a runner, make tokens, administer."""

import sys

from leaderboard.errors import LeaderboardError
from leaderboard.options import parser

USAGE, INTERRUPTED = 2, 130


def main(argv: list[str]) -> int:
    """Run a command; the exit code. A user's mistake is one line on stderr."""
    options = parser().parse_args(argv)
    try:
        return options.run(options)
    except LeaderboardError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
