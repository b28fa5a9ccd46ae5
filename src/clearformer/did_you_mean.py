"""\"Did you mean ...?\" for unknown names."""

import difflib
from collections.abc import Iterable


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like `name`, if any is."""
    matches = difflib.get_close_matches(name[:100], list(known), n=1)  # it may come from a file
    return matches[0] if matches else None


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an 'unknown name' error: the nearest known name, or all of them."""
    known = list(known)
    guess = closest(name, known)
    return f"known: {', '.join(known)}" if guess is None else f"did you mean {guess!r}?"
