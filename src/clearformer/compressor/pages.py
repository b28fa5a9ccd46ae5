"""Bytes to tokens and back, for any bytes and any tokenizer.

A text is cut into pages. A page that its tokens restore exactly is coded by the model. One that
they do not restore (unknown words, lower case, invalid UTF-8) is halved until what remains is
short, which is stored as it is, compressed by LZMA. The page table lists the parts: how many
tokens, or how many bytes. A tokenizer whose ids are bytes needs no table.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from clearformer.compressor.packing import Reader, varint
from clearformer.text import Tokenizer

PAGE = 2**20  # bytes that are tokenized together
SHORTEST = 128  # bytes that are not cut further: a part costs a few bytes of the table
MAX_RAW = 2**34  # bytes that a page table may hold
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
Tokens = NDArray[np.generic]  # unsigned integers


@dataclass(frozen=True)
class Pages:
    """Tokens of a file, and the bytes that the tokenizer cannot restore."""

    tokens: Tokens  # (N,)
    table: bytes = b""
    raw: int = 0  # bytes that the model does not code


@dataclass
class _Parts:
    """Parts of a file in order, each with its tokens or as it is."""

    ids: list[Tokens] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)  # tokens and bytes in turn, tokens first
    raw: list[bytes] = field(default_factory=list)

    def add_tokens(self, ids: Tokens) -> None:
        if len(self.counts) % 2:  # tokens after tokens: nothing raw is between
            self.counts.append(0)
        self.ids.append(ids)
        self.counts.append(len(ids))

    def add_raw(self, data: bytes) -> None:
        self.raw.append(data)
        if len(self.counts) % 2:
            self.counts.append(len(data))
        elif self.counts:
            self.counts[-1] += len(data)
        else:
            self.counts += [0, len(data)]


def tokenize(data: bytes, tokenizer: Tokenizer) -> Pages:
    """The tokens of any bytes."""
    if tokenizer.ids_are_bytes:
        return Pages(np.frombuffer(data, dtype=np.uint8))
    parts = _Parts()
    start = 0
    while start < len(data):
        end = _cut(data, start, min(start + PAGE, len(data)))
        _split(data, start, end, tokenizer, parts)
        start = end
    kind = np.uint16 if tokenizer.size <= 2**16 else np.uint32
    tokens = np.concatenate([np.zeros(0, kind), *parts.ids]).astype(kind)
    raw = b"".join(parts.raw)
    table = b"".join(map(varint, (len(parts.counts), *parts.counts))) + raw
    packed = lzma.compress(table, lzma.FORMAT_RAW, filters=FILTERS)
    return Pages(tokens, packed, len(raw))


def restore(pages: Pages, tokenizer: Tokenizer) -> Iterator[bytes]:
    """The bytes of a file, page by page; ValueError if the page table does not fit the tokens."""
    if tokenizer.ids_are_bytes:
        for start in range(0, len(pages.tokens), PAGE):
            yield pages.tokens[start : start + PAGE].astype(np.uint8).tobytes()
        return
    opener = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=FILTERS)
    try:
        table = opener.decompress(pages.table, MAX_RAW)
    except (lzma.LZMAError, EOFError):
        raise ValueError("the page table is damaged") from None
    numbers = Reader(table)
    try:
        parts = numbers.number("the number of parts", 0, len(table))
        counts = [numbers.number("the size of a part", 0, MAX_RAW) for _ in range(parts)]
    except ValueError:
        raise ValueError("the page table is damaged") from None
    place, at = 0, numbers.place
    for index, count in enumerate(counts):
        if index % 2:
            yield table[at : at + count]
            at += count
        else:
            text = tokenizer.decode(pages.tokens[place : place + count].astype(np.int64))
            yield text.encode("utf-8", "surrogatepass")
            place += count
    if place != len(pages.tokens) or at != len(table):
        raise ValueError("the page table does not fit the tokens")


def _split(data: bytes, start: int, end: int, tokenizer: Tokenizer, parts: _Parts) -> None:
    """Add data[start:end], halved until each part is restored by its tokens or short."""
    part = data[start:end]
    ids = _lossless(part, tokenizer)
    if ids is not None:
        parts.add_tokens(ids)
    elif len(part) <= SHORTEST:
        parts.add_raw(part)
    else:
        middle = _cut(data, start, start + len(part) // 2)
        _split(data, start, middle, tokenizer, parts)
        _split(data, middle, end, tokenizer, parts)


def _lossless(part: bytes, tokenizer: Tokenizer) -> Tokens | None:
    """The tokens of some bytes, if they restore them."""
    try:
        text = part.decode("utf-8")
        ids = tokenizer.encode(text)
    except ValueError:  # no UTF-8, or nothing that this tokenizer accepts
        return None
    kept = tokenizer.decode(ids).encode("utf-8", "surrogatepass") == part
    return ids if kept else None


def _cut(data: bytes, start: int, end: int) -> int:
    """A place near the end of data[start:end] to cut at: after a line, or between characters."""
    if end == len(data):
        return end
    line = data.rfind(b"\n", start + (end - start) // 2, end)
    if line >= 0:
        return line + 1
    first = max(start + 1, end - 3)  # a character has at most four bytes
    return next((i for i in range(end, first - 1, -1) if data[i] & 0xC0 != 0x80), end)
