"""Bytes to tokens and back, for any bytes and any tokenizer.

A text is cut into pages. A page that its tokens restore exactly is coded by the model. One that
they do not restore (unknown words, lower case, invalid UTF-8) is halved until what remains is
short, which is stored as it is, compressed by LZMA. The page table lists the parts: how many
tokens, or how many bytes. A tokenizer whose ids are bytes needs no table.
"""

from __future__ import annotations

import hashlib
import io
import lzma
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from clearformer.compressor.packing import Reader, varint
from clearformer.text import Tokenizer

# Bytes that are tokenized together: the library `tokenizers` takes 150 to 200 bytes of memory for
# each of them. A page costs two to six bytes of the table.
PAGE = 2**16
MAX_PARTS = 2**28
SHORTEST = 128  # bytes that are not cut further: a part costs a few bytes of the table
MAX_RAW = 2**34  # bytes that a page table may hold
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
DAMAGED = "the page table is damaged"
Tokens = NDArray[np.generic]  # unsigned integers


@dataclass(frozen=True)
class Pages:
    """Tokens of a file, and the bytes that the tokenizer cannot restore."""

    tokens: Tokens  # (N,)
    table: bytes | memoryview = b""
    raw: int = 0  # bytes that the model does not code
    length: int = 0  # of the file
    sha256: str = ""


class _Parts:
    """Parts of a file in order, each with its tokens or as it is."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.ids = array("H" if tokenizer.size <= 2**16 else "I")
        self.counts: list[int] = []  # tokens and bytes in turn, tokens first
        self.raw = bytearray()

    def add_tokens(self, ids: Tokens) -> None:
        if len(self.counts) % 2:  # tokens after tokens: nothing raw is between
            self.counts.append(0)
        self.ids.frombytes(ids.astype(self.ids.typecode).tobytes())
        self.counts.append(len(ids))

    def add_raw(self, data: bytes) -> None:
        self.raw += data
        if len(self.counts) % 2:
            self.counts.append(len(data))
        elif self.counts:
            self.counts[-1] += len(data)
        else:
            self.counts += [0, len(data)]

    def split(self, part: bytes) -> None:
        """Add some bytes, halved until each part is restored by its tokens or short."""
        ids = _lossless(part, self.tokenizer)
        if ids is not None:
            self.add_tokens(ids)
        elif len(part) <= SHORTEST:
            self.add_raw(part)
        else:
            middle = _cut(part, len(part) // 2)
            self.split(part[:middle])
            self.split(part[middle:])

    def table(self) -> bytes:
        numbers = b"".join(map(varint, (len(self.counts), *self.counts)))
        # LZMA takes eleven times its dictionary as memory, whatever it packs.
        dictionary = max(2**12, min(2**26, len(numbers) + len(self.raw)))
        filters = [{**FILTERS[0], "dict_size": dictionary}]
        packer = lzma.LZMACompressor(lzma.FORMAT_RAW, filters=filters)
        return b"".join((packer.compress(numbers), packer.compress(self.raw), packer.flush()))


def tokenize(source: bytes | BinaryIO, tokenizer: Tokenizer) -> Pages:
    """The tokens of any bytes, or of an open file, which is read once and page by page."""
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    if tokenizer.ids_are_bytes:
        data = file.read()
        digest = hashlib.sha256(data)
        return Pages(np.frombuffer(data, np.uint8), length=len(data), sha256=digest.hexdigest())
    parts, digest, length = _Parts(tokenizer), hashlib.sha256(), 0
    page = file.read(PAGE + 1)  # one more, to see whether the page ends between characters
    while page:
        end = len(page) if len(page) <= PAGE else _cut(page, PAGE)
        parts.split(page[:end])
        digest.update(page[:end])
        length += end
        page = page[end:] + file.read(PAGE + 1 - (len(page) - end))
    tokens = np.frombuffer(parts.ids, parts.ids.typecode)
    return Pages(tokens, parts.table(), len(parts.raw), length, digest.hexdigest())


def restore(pages: Pages, tokenizer: Tokenizer) -> Iterator[bytes]:
    """The bytes of a file, page by page; ValueError if the page table does not fit the tokens."""
    if tokenizer.ids_are_bytes:
        for start in range(0, len(pages.tokens), PAGE):
            yield pages.tokens[start : start + PAGE].astype(np.uint8).tobytes()
        return
    table = _TableReader(pages.table)
    try:
        parts = table.number("the number of parts", 0, MAX_PARTS)
        counts = [table.number("the size of a part", 0, MAX_RAW) for _ in range(parts)]
    except ValueError:
        raise ValueError(DAMAGED) from None
    place = 0
    for index, count in enumerate(counts):
        if index % 2:
            for start in range(0, count, PAGE):
                yield table.take(min(PAGE, count - start))
        else:
            text = tokenizer.decode(pages.tokens[place : place + count].astype(np.int64))
            yield text.encode("utf-8", "surrogatepass")
            place += count
    if place != len(pages.tokens) or table.rest():
        raise ValueError("the page table does not fit the tokens")


class _TableReader(Reader):
    """Reads a page table, which is unpacked as far as it is read."""

    def __init__(self, packed: bytes | memoryview) -> None:
        super().__init__(b"")
        self.unpacker = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=FILTERS)
        self.packed = packed

    def take(self, count: int) -> bytes:
        while self.place + count > len(self.data):
            more = self._more()
            if not more:
                raise ValueError(DAMAGED)
            self.data, self.place = self.data[self.place :] + more, 0
        return super().take(count)

    def rest(self) -> bool:
        """Whether anything is left."""
        return self.place < len(self.data) or bool(self._more())

    def _more(self) -> bytes:
        packed, self.packed = self.packed, b""
        try:
            return self.unpacker.decompress(packed, PAGE)
        except (lzma.LZMAError, EOFError):
            return b""


def _lossless(part: bytes, tokenizer: Tokenizer) -> Tokens | None:
    """The tokens of some bytes, if they restore them."""
    try:
        text = part.decode("utf-8")
        ids = tokenizer.encode(text)
    except ValueError:  # no UTF-8, or nothing that this tokenizer accepts
        return None
    kept = tokenizer.decode(ids).encode("utf-8", "surrogatepass") == part
    return ids if kept else None


def _cut(data: bytes, end: int) -> int:
    """A place near `end` to cut at: after a line, or between characters."""
    line = data.rfind(b"\n", end // 2, end)
    if line >= 0:
        return line + 1
    first = max(1, end - 3)  # a character has at most four bytes
    return next((i for i in range(end, first - 1, -1) if data[i] & 0xC0 != 0x80), end)
