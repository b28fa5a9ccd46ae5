"""Decodes the bytes of a table: UTF-8, what a byte order mark says, or Windows-1252."""

import codecs
from collections.abc import Callable, Iterator

from clearformer.data.texts import TextSource
from clearformer.text.utf8 import NotTextError, text_chunks

# Byte order marks; that of UTF-32 begins like that of UTF-16.
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
FALLBACK = "cp1252"  # what spreadsheets on Windows write
NAME = {"cp1252": "Windows-1252", "utf-16": "UTF-16", "utf-32": "UTF-32"}


def decoded_table(
    source: TextSource, encoding: str | None, note: Callable[[str], None]
) -> Iterator[str]:
    """The text of a table; `note` is told if it was not UTF-8 and no encoding was given."""
    if encoding is not None:
        return _decoded(source, _known(encoding))
    head = next(iter(source.chunks()), b"")[:4]
    marked = next((name for mark, name in MARKS if head.startswith(mark)), None)
    if marked is not None:
        note(f"{source.name} is {NAME[marked]}, by its first bytes")
        return _decoded(source, marked)
    try:
        for _ in text_chunks(source.chunks()):
            pass
    except NotTextError as problem:
        if _fits(source, FALLBACK):
            note(
                f"{source.name} is not UTF-8 (byte {problem.offset} {problem.reason}) and was read "
                f"as {NAME[FALLBACK]}; --encoding names another encoding"
            )
            return _decoded(source, FALLBACK)
    return _explained(source)  # UTF-8, or the error with its line


def _explained(source: TextSource) -> Iterator[str]:
    try:
        yield from source.decoded()
    except ValueError as problem:
        sentence = str(problem).partition(": save the text as UTF-8")[0]
        raise ValueError(
            f"{sentence}: save the table as UTF-8, or name its encoding (--encoding)"
        ) from None


def _known(encoding: str) -> str:
    try:
        found = codecs.lookup(encoding)
    except (LookupError, ValueError):
        found = None
    if found is None or not getattr(found, "_is_text_encoding", True):
        raise ValueError(
            f"the encoding is {encoding!r:.60}, which Python does not know: usual ones are utf-8, "
            f"cp1252, latin-1, utf-16, shift_jis and gb18030"
        )
    return found.name


def _fits(source: TextSource, encoding: str) -> bool:
    """Whether all bytes are text in this encoding."""
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for chunk in source.chunks():
            if "\0" in decoder.decode(chunk):
                return False
    except UnicodeDecodeError:
        return False
    return True


def _decoded(source: TextSource, encoding: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)()
    line = 1
    try:
        for chunk in source.chunks():
            text = decoder.decode(chunk)
            if "\0" in text:
                line += text[: text.index("\0")].count("\n")
                raise ValueError(
                    f"{source.name}, line {line}: a NUL, as in a binary file or in another "
                    f"encoding than {encoding}: check --encoding"
                )
            line += text.count("\n")
            yield text.removeprefix("\ufeff") if line == 1 + text.count("\n") else text
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as problem:
        raise ValueError(
            f"{source.name}, near line {line}: it is not {encoding} ({problem.reason}): name "
            f"another --encoding, or leave it out"
        ) from None
