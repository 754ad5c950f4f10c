"""The family of errors raised for files that are not in the popcorn format."""


class PopcornError(ValueError):
    """A file or text is not in the popcorn format. The message names the place, the fault and what is allowed."""
