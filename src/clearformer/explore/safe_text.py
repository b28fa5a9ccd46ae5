"""Text out of files and file names, as an answer can carry it: valid Unicode, and not too long."""

from __future__ import annotations

LONGEST = 4000  # characters


def clean(text: str, most: int = LONGEST) -> str:
    """The text, cut, with a question mark for what UTF-8 cannot write: half a surrogate pair out
    of a JSON file, or a byte of a file name."""
    return text[:most].encode("utf-8", "replace").decode("utf-8")
