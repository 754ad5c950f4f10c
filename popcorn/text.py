"""Text that somebody else chose, made fit for a terminal, a JSON file and a pipe."""

import re

# Control characters other than line feed and tab (a terminal would obey them: move up, overwrite a verdict), lone
# surrogates (no UTF-8 file can hold them), and the marks that reverse the direction of what follows.
_UNFIT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """`text` with carriage returns taken as line ends and everything unfit shown as its escape, such as \\x1b."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _UNFIT.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode("ascii"), lines)
