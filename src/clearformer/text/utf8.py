"""From bytes to text, strictly: what is not UTF-8 is an error that says where.

Why not `errors="replace"`: a model trained on replacement characters learns them, and nobody
is told. The byte tokenizer takes anything and never comes here.
"""

import codecs
from collections.abc import Iterable, Iterator

CHUNK = 1 << 17  # characters of text encoded at a time: memory stays flat, tokens stay whole

ADVICE = "save the text as UTF-8 (a generator with the byte tokenizer takes anything)"


class NotTextError(ValueError):
    """These bytes are no text: the `offset` of the first that is wrong, and the `reason`."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"byte {offset} {reason}: {ADVICE}")
        self.offset = offset
        self.reason = reason


def decode(data: bytes) -> str:
    """All of `data` as text."""
    text, _ = _decode(data, start=0, final=True)
    return text


def text_chunks(chunks: Iterable[bytes], size: int = CHUNK) -> Iterator[str]:
    """The text of a stream of bytes, at most `size` characters at a time.

    Where a chunk ends depends on the text alone, not on how the bytes arrived; and it ends
    before a space where there is one, so that no tokenizer's tokens reach across.
    """
    offset, pending = 0, b""  # bytes decoded so far, and the beginning of a cut character
    text = ""
    for chunk in chunks:
        decoded, used = _decode(pending + chunk, start=offset, final=False)
        pending = (pending + chunk)[used:]
        offset += used
        text += decoded
        start = 0
        while len(text) - start > size:
            end = _boundary(text, start, start + size)
            yield text[start:end]
            start = end
        text = text[start:]
    text += _decode(pending, start=offset, final=True)[0]
    if text:
        yield text


def require_unicode(text: str) -> None:
    """Refuse half of a surrogate pair, which Python's strings can hold and UTF-8 cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"character {error.start} of the text is U+{ord(text[error.start]):04X}, "
            f"half of a surrogate pair: it has no meaning alone, so leave it out"
        ) from None


def _decode(data: bytes, start: int, final: bool) -> tuple[str, int]:
    """Text, and how many bytes of it: all but a cut character at the end, unless `final`."""
    nul = data.find(b"\0")
    if nul >= 0:
        raise NotTextError(start + nul, "is NUL, as in a binary file or in UTF-16")
    try:
        return codecs.utf_8_decode(data, "strict", final)
    except UnicodeDecodeError as error:
        reason = f"is 0x{data[error.start]:02X}, which is not UTF-8 there"
        raise NotTextError(start + error.start, reason) from None


def _boundary(text: str, start: int, end: int) -> int:
    """Where to cut between the middle and `end`: before white space that follows a word.

    Before and not after, because byte pairs take the space with the word behind it; and a run
    of white space is not cut, because they treat its last character apart.
    """
    middle = (start + end) // 2
    for space in (" ", "\r\n", "\n"):
        place = text.rfind(space, middle, end)
        while place > middle:
            # `<br />` is one mark of our word tokenizer.
            if not text[place - 1].isspace() and text[place - 3 : place].lower() != "<br":
                return place
            place = text.rfind(space, middle, place)
    return end
