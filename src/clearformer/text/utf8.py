"""Strict UTF-8 decoding of bytes and streams; errors name the offset.

`errors="replace"` is not used: a model would silently learn the replacement characters. The
byte tokenizer accepts any bytes and does not use this module.
"""

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence

CHUNK = 1 << 17  # characters encoded at a time, so that memory stays constant
MAX_GROWTH = 32  # factor by which a chunk may grow if it has no boundary

ADVICE = "save the text as UTF-8 (a generator with the bytes tokenizer accepts any file)"


class NotTextError(ValueError):
    """Bytes that are not UTF-8: the `offset` of the first bad byte, and the `reason`."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"byte {offset} {reason}: {ADVICE}")
        self.offset = offset
        self.reason = reason


def decode(data: bytes) -> str:
    """All of `data` as text."""
    text, _ = _decode(data, start=0, final=True)
    return text


def text_chunks(
    chunks: Iterable[bytes], size: int = CHUNK, unsplittable: Sequence[str] = ()
) -> Iterator[str]:
    """The text of a stream of bytes, about `size` characters at a time.

    The end of a chunk depends on the text alone, not on how the bytes arrived. No tokenizer has a
    token across it, so that the ids of the chunks are those of the text; a chunk never ends within
    one of the `unsplittable` strings. Without such a boundary, the chunk grows up to MAX_GROWTH
    times `size` and is then split anywhere.
    """
    offset, pending = 0, b""  # bytes decoded so far, and the start of an incomplete character
    text = ""
    ahead = max(map(len, unsplittable), default=0)  # to see whether one of them spans a cut
    window = size
    for chunk in chunks:
        decoded, used = _decode(pending + chunk, start=offset, final=False)
        pending = (pending + chunk)[used:]
        offset += used
        text += decoded
        start = 0
        while len(text) - start > window + ahead:
            end = _boundary(text, start, start + window, unsplittable)
            if end is None and window < MAX_GROWTH * size:
                window *= 2
                continue
            if end is None:
                end = _outside(text, start, start + window, unsplittable)
            yield text[start:end]
            start, window = end, size
        text = text[start:]
    text += _decode(pending, start=offset, final=True)[0]
    if text:
        yield text


def require_unicode(text: str) -> None:
    """ValueError for lone surrogates, which cannot be encoded in UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"character {error.start} of the text is U+{ord(text[error.start]):04X}, "
            f"a lone surrogate, which is not valid text: remove it"
        ) from None


def _decode(data: bytes, start: int, final: bool) -> tuple[str, int]:
    """Text and the number of bytes decoded; unless `final`, an incomplete character may remain."""
    nul = data.find(b"\0")
    if nul >= 0:
        raise NotTextError(start + nul, "is NUL, as in a binary file or in UTF-16")
    try:
        return codecs.utf_8_decode(data, "strict", final)
    except UnicodeDecodeError as error:
        reason = f"is 0x{data[error.start]:02X}, which is not UTF-8 there"
        raise NotTextError(start + error.start, reason) from None


# Boundaries that no token spans. Before white space, not after it, because BPE joins a space to the
# following word; not within a run of white space, because its last character is special. Some
# patterns join line breaks to the preceding mark (`.` and "\n"). Texts without spaces have
# punctuation; not `.` and `:`, which are inside a word for Unicode's lowercasing of sigma.
BOUNDARIES: tuple[tuple[str, Callable[[str], bool]], ...] = (
    (" ", lambda before: not before.isspace()),
    *((sign, str.isalnum) for sign in ("\r\n", "\n")),
    *((mark, str.isalpha) for mark in ",;!?，。；！？、"),
)


def _boundary(text: str, start: int, end: int, unsplittable: Sequence[str]) -> int | None:
    """The last boundary between the middle and `end`."""
    middle = (start + end) // 2
    for sign, fits in BOUNDARIES:
        position = text.rfind(sign, middle, end)
        while position > middle:
            # `<br />` is one token of our word tokenizer.
            in_break = text[position - 3 : position].lower() == "<br"
            if (
                fits(text[position - 1])
                and not in_break
                and not _inside(text, start, position, unsplittable)
            ):
                return position
            position = text.rfind(sign, middle, position)
    return None


def _inside(text: str, start: int, position: int, unsplittable: Sequence[str]) -> bool:
    """Whether one of the strings spans this position."""
    return any(
        text.find(each, max(start, position - len(each) + 1), position + len(each) - 1) >= 0
        for each in unsplittable
    )


def _outside(text: str, start: int, end: int, unsplittable: Sequence[str]) -> int:
    """The last position up to `end` that none of the strings spans."""
    positions = range(end, start, -1)
    return next(
        (position for position in positions if not _inside(text, start, position, unsplittable)),
        end,
    )
