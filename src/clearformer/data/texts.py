"""TextSource: a text of any size as a stream of bytes that can be read repeatedly.

It may be one file or many, compressed or not, or a part of them; the reader sees one stream. Its
fingerprint (size and sha256) is computed by reading it once. File dates are not used: a copy may
keep them, and a tool may set them.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from clearformer.text.utf8 import ADVICE, NotTextError, text_chunks

CHUNK_BYTES = 1 << 20  # bytes at a time

Progress = Callable[[int, int | None], None]  # bytes done, and of how many if that is known

MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\x00\x00\xfe\xff": "UTF-32"}
UTF8_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class SourceFile:
    """One file of a text, with a function that reads it from its start."""

    name: str
    read: Callable[[], Iterator[bytes]]
    lead: int = 0  # bytes at the start of the file that `read` skips: the byte order mark
    size: int | None = None  # bytes that `read` returns, if known without reading
    read_from: Callable[[int], Iterator[bytes]] | None = None  # `read` from an offset on
    unchanged: Callable[[], bool] = lambda: True  # whether the file was not modified meanwhile

    @cached_property
    def extent(self) -> tuple[int, bool]:
        """The number of bytes that `read` returns, and whether they end within a line."""
        size, last = 0, b"\n"
        for chunk in self.read():
            size += len(chunk)
            last = chunk or last
        return size, not last.endswith(b"\n")


def in_memory(name: str, data: bytes) -> SourceFile:
    """A text in memory, for what is not a file or cannot be read twice."""
    return SourceFile(
        name, lambda: (data[i : i + CHUNK_BYTES] for i in range(0, len(data), CHUNK_BYTES))
    )


@dataclass(frozen=True)
class Fingerprint:
    """Identity of a text: the size and hash of its content."""

    size: int
    sha256: str


def changed_while_read(name: str) -> ValueError:
    """The error for a text that was modified while it was read."""
    return ValueError(
        f"{name}: it was changed while it was being read: start again when no program writes to it"
    )


@dataclass(frozen=True)
class TextSource:
    """Concatenated files, or the bytes from `start` to `stop` of them."""

    name: str
    pieces: tuple[SourceFile, ...]
    start: int = 0
    stop: int | None = None

    def chunks(self) -> Iterator[bytes]:
        """The bytes, in chunks."""
        return (chunk for _, chunk in self._chunks_with_file())

    def files(self) -> Iterator[bytes]:
        """The bytes of each file, one file at a time."""
        for _, chunks in groupby(self._chunks_with_file(), key=lambda entry: id(entry[0])):
            yield b"".join(chunk for _, chunk in chunks)

    def decoded(self) -> Iterator[str]:
        """The text, in chunks; ValueError with file and line if it is not UTF-8."""
        with self.explaining():
            yield from text_chunks(self.chunks())

    def read(self) -> bytes:
        return b"".join(self.chunks())

    def part(self, start: int, stop: int | None = None) -> "TextSource":
        """The bytes from `start` to `stop` of this text."""
        first = self.start + start
        last = self.stop if stop is None else self.start + stop
        if self.stop is not None and last is not None:
            last = min(last, self.stop)
        return replace(self, start=first, stop=last)

    @property
    def size(self) -> int:
        total = self._total_bytes
        last = total if self.stop is None else min(total, self.stop)
        return max(0, last - self.start)

    @property
    def sha256(self) -> str:
        return self.fingerprint.sha256

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """Size and sha256, computed by reading the text once."""
        size, digest = 0, hashlib.sha256()
        for chunk in self.chunks():
            size += len(chunk)
            digest.update(chunk)
        return Fingerprint(size, digest.hexdigest())

    @property
    def _total_bytes(self) -> int:
        """Bytes of all files; they are read at most once for this."""
        [first, *others] = self.pieces
        if not others and first.size is not None:
            return first.size
        whole, cut = 0, False  # cut: the last line has no line break yet
        for index, piece in enumerate(self.pieces):
            whole, cut = (whole + 1, False) if index and cut else (whole, cut)
            size, inside = piece.extent
            whole, cut = whole + size, inside if size else cut
        return whole

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Add the file and line to an error about a byte that is not text."""
        try:
            yield
        except NotTextError as error:
            raise ValueError(self._explain(error)) from None

    def _chunks_with_file(self) -> Iterator[tuple[SourceFile, bytes]]:
        """Every chunk between `start` and `stop`, with its file."""
        first = self.pieces[0]
        if len(self.pieces) == 1 and first.read_from is not None:
            left = self.size  # a part of a large file is read without the bytes before it
            for chunk in first.read_from(self.start) if left else ():
                yield first, chunk[:left]
                left -= len(chunk)
                if left <= 0:
                    return
            return
        position = 0
        # Read to the end even for a part: the hash of a corpus is checked at its last byte.
        for piece, chunk in self._joined():
            low = max(self.start - position, 0)
            high = len(chunk) if self.stop is None else min(self.stop - position, len(chunk))
            if low < high:
                yield piece, chunk[low:high]
            position += len(chunk)

    def _joined(self) -> Iterator[tuple[SourceFile, bytes]]:
        """Every chunk with its file; a line break is added to a file that ends within a line."""
        last = b"\n"
        for index, piece in enumerate(self.pieces):
            if index and not last.endswith(b"\n"):
                last = b"\n"
                yield self.pieces[index - 1], last
            for chunk in piece.read():
                if chunk:
                    yield piece, chunk
                    last = chunk

    def _explain(self, error: NotTextError) -> str:
        target = self.start + error.offset
        position, begin, line, head, current = 0, 0, 1, b"", None
        for piece, chunk in self._joined():
            if piece is not current:
                begin, line, head, current = position, 1, chunk[:4], piece
            inside = target - position
            if inside < len(chunk):
                for mark, name in MARKS.items():
                    if head.startswith(mark):
                        return f"{piece.name}: it is {name} (by its first bytes): {ADVICE}"
                line += chunk.count(b"\n", 0, inside)
                byte = target - begin + piece.lead
                return f"{piece.name}, line {line}: byte {byte} {error.reason}: {ADVICE}"
            line += chunk.count(b"\n")
            position += len(chunk)
        return f"{self.name}: {error}"


def fingerprint_together(*texts: TextSource) -> None:
    """Fingerprint texts that belong together, such as two parts of one file.

    ValueError if a file changed in between.
    """
    for text in texts:
        _ = text.fingerprint
    if all(piece.unchanged() for text in texts for piece in text.pieces):
        return
    for text in texts:  # a file was touched: compare the content
        if replace(text).fingerprint != text.fingerprint:
            raise changed_while_read(text.name)
