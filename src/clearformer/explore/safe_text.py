"""Text from untrusted files and file names, made valid Unicode and cut to a length."""

from __future__ import annotations

MAX_LENGTH = 4000  # characters


def clean(text: str, max_length: int = MAX_LENGTH) -> str:
    """The text, cut, with a question mark for what UTF-8 cannot encode: half a surrogate pair
    from a JSON file, or an undecodable byte of a file name."""
    return text[:max_length].encode("utf-8", "replace").decode("utf-8")
