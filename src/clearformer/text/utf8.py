"""From bytes to text, strictly: what is not UTF-8 is an error that says where.

Why not `errors="replace"`: a model trained on replacement characters learns them, and nobody
is told. The byte tokenizer takes anything and never comes here.
"""

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence

CHUNK = 1 << 17  # characters of text encoded at a time: memory stays flat, tokens stay whole
LONGEST = 32  # chunks of text without a place to cut it that are kept together

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


def text_chunks(
    chunks: Iterable[bytes], size: int = CHUNK, whole: Sequence[str] = ()
) -> Iterator[str]:
    """The text of a stream of bytes, about `size` characters at a time.

    Where a chunk ends depends on the text alone, not on how the bytes arrived. It ends where no
    tokenizer's token reaches across, so that the ids of the chunks are those of the text, and
    never inside one of the strings `whole`. Where there is no such place, the chunk grows up to
    LONGEST times `size`, and is then cut anywhere.
    """
    offset, pending = 0, b""  # bytes decoded so far, and the beginning of a cut character
    text = ""
    ahead = max(map(len, whole), default=0)  # to see whether one of them begins before a cut
    window = size
    for chunk in chunks:
        decoded, used = _decode(pending + chunk, start=offset, final=False)
        pending = (pending + chunk)[used:]
        offset += used
        text += decoded
        start = 0
        while len(text) - start > window + ahead:
            end = _boundary(text, start, start + window, whole)
            if end is None and window < LONGEST * size:
                window *= 2
                continue
            if end is None:
                end = _outside(text, start, start + window, whole)
            yield text[start:end]
            start, window = end, size
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


# Where no token of any kind reaches across. Before white space and not after, because byte pairs
# take the space with the word behind it; and a run of white space is not cut, because they treat
# its last character apart. Some patterns take line breaks with the mark before them (`.` and
# "\n"). Texts without spaces have marks; not `.` and `:`, which Unicode counts as inside of a
# word where it lowercases a sigma.
PLACES: tuple[tuple[str, Callable[[str], bool]], ...] = (
    (" ", lambda before: not before.isspace()),
    *((sign, str.isalnum) for sign in ("\r\n", "\n")),
    *((mark, str.isalpha) for mark in ",;!?，。；！？、"),
)


def _boundary(text: str, start: int, end: int, whole: Sequence[str]) -> int | None:
    """The last place between the middle and `end` where to cut."""
    middle = (start + end) // 2
    for sign, fits in PLACES:
        place = text.rfind(sign, middle, end)
        while place > middle:
            # `<br />` is one mark of our word tokenizer.
            in_break = text[place - 3 : place].lower() == "<br"
            if fits(text[place - 1]) and not in_break and not _inside(text, start, place, whole):
                return place
            place = text.rfind(sign, middle, place)
    return None


def _inside(text: str, start: int, place: int, whole: Sequence[str]) -> bool:
    """Whether one of the strings begins before a place and ends behind it."""
    return any(
        text.find(each, max(start, place - len(each) + 1), place + len(each) - 1) >= 0
        for each in whole
    )


def _outside(text: str, start: int, end: int, whole: Sequence[str]) -> int:
    """The last place up to `end` that is inside of none of the strings."""
    places = range(end, start, -1)
    return next((place for place in places if not _inside(text, start, place, whole)), end)
