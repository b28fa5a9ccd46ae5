"""What is said of a name that nobody knows, the same everywhere."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """A closing remark for 'unknown name' errors: the nearest known name, or all of them."""
    known = list(known)
    close = difflib.get_close_matches(name[:100], known, n=1)  # a file may say anything
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
