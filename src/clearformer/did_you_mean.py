"""\"Did you mean ...?\" for unknown names."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an 'unknown name' error: the nearest known name, or all of them."""
    known = list(known)
    close = difflib.get_close_matches(name[:100], known, n=1)  # the name may come from a file
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
