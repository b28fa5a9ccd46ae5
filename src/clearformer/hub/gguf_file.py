"""Untrusted GGUF files: the header is read with limits, the data mapped and dequantized.

The reader of the `gguf` library trusts a file: a forged count makes it loop for hours, and an
offset outside the file gives a short tensor without an error. So the header is read here, where
every size is checked against the file before anything is allocated; the library gives the formats
of the blocks and dequantizes them. Nothing here runs code.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearformer import limits
from clearformer.hub.safetensors_files import printable

MAGIC, VERSIONS = b"GGUF", (2, 3)
SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 10, 11, 12), "BbHhIifQqd", strict=True))
BOOL, STRING, ARRAY = 7, 8, 9
ALIGNMENT = "general.alignment"
MAX_AXES = 4
# Stored as they are, and in blocks that the library dequantizes.
PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
BLOCKS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")

Value = int | float | bool | str | list[Any]


def gguf_library() -> ModuleType:
    """The `gguf` library; ValueError if it is not installed."""
    try:
        import gguf
    except ImportError:
        raise ValueError(
            "GGUF files need the gguf library: pip install 'clearformer[gguf]'"
        ) from None
    return gguf


@dataclass(frozen=True)
class Entry:
    """Where a tensor is in its file."""

    kind: str  # a name of PLAIN or BLOCKS
    shape: tuple[int, ...]  # as in torch: rows first
    start: int  # bytes from the beginning of the file
    size: int  # bytes


class GGUFFile:
    """One GGUF file: `metadata` by key, and tensors by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.library = gguf_library()
        try:
            if path.exists() and not path.is_file():  # a pipe would block
                raise ValueError("it is not a file")
            with path.open("rb") as file:
                if path.stat().st_size < 24:
                    raise ValueError("it is shorter than a header")
                # Private: a page that is written to is copied.
                self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            self._read_header()
        except ValueError as problem:
            raise ValueError(f"{path} is not a valid GGUF file: {problem}") from None
        except OSError as problem:
            raise ValueError(f"{path} cannot be read: {problem.strerror}") from None

    def names(self) -> Iterable[str]:
        return self.entries

    def shape(self, name: str) -> tuple[int, ...]:
        return self.entries[name].shape

    def kinds(self) -> list[str]:
        """The block formats in the file, sorted."""
        return sorted({entry.kind for entry in self.entries.values()} - PLAIN.keys())

    def tensor(self, name: str) -> Tensor:
        entry = self.entries[name]
        if entry.kind in PLAIN:
            dtype, count = PLAIN[entry.kind], math.prod(entry.shape)
            flat = torch.frombuffer(self.map, dtype=dtype, count=count, offset=entry.start)
            return flat.view(entry.shape)
        kind = self.library.GGMLQuantizationType[entry.kind]
        raw = np.frombuffer(self.map, np.uint8, count=entry.size, offset=entry.start)
        rows = raw.reshape(*entry.shape[:-1], -1)
        with np.errstate(all="ignore"):  # a damaged scale may be inf or NaN, which is noted later
            return torch.from_numpy(self.library.dequantize(rows, kind))

    def release(self, name: str) -> None:
        entry = self.entries[name]
        page = mmap.PAGESIZE
        first, last = -(-entry.start // page) * page, (entry.start + entry.size) // page * page
        if hasattr(mmap, "MADV_DONTNEED") and last > first:
            self.map.madvise(mmap.MADV_DONTNEED, first, last - first)

    def _read_header(self) -> None:
        header = _Header(self.map)
        if header.take(4) != MAGIC:
            raise ValueError("it does not begin with GGUF")
        version = header.number("I")
        if version not in VERSIONS:
            raise ValueError(
                f"it has version {version}, but clearformer reads the versions 2 and 3 "
                f"(little-endian)"
            )
        tensors, keys = header.number("Q"), header.number("Q")
        _require_at_most("tensors", tensors, limits.MAX_GGUF_TENSORS, "MAX_GGUF_TENSORS")
        _require_at_most("keys", keys, limits.MAX_GGUF_KEYS, "MAX_GGUF_KEYS")
        self.metadata: dict[str, Value] = {}
        for _ in range(keys):
            key = header.text("a key")
            if key in self.metadata:
                raise ValueError(f"it has the key {printable(key)} twice")
            self.metadata[key] = header.value(header.number("I"), key)
        alignment = self.metadata.get(ALIGNMENT, 32)
        if type(alignment) is not int or alignment not in (8, 16, 32, 64, 128, 256, 512, 4096):
            raise ValueError(f"{ALIGNMENT} is {alignment!r:.40}, but it must be a power of two")
        infos = [_read_info(header) for _ in range(tensors)]
        start = -(-header.at // alignment) * alignment
        self.entries: dict[str, Entry] = {}
        for name, shape, kind, offset in infos:
            if name in self.entries:
                raise ValueError(f"it has the tensor {printable(name)} twice")
            if offset % alignment:
                raise ValueError(f"{printable(name)} is at {offset}, which is not aligned")
            self.entries[name] = self._entry(name, shape, kind, start + offset)
        self._require_apart()

    def _entry(self, name: str, shape: tuple[int, ...], kind: int, start: int) -> Entry:
        known = {each.value: each.name for each in self.library.GGMLQuantizationType}
        label = known.get(kind, str(kind))
        if label not in (*PLAIN, *BLOCKS):
            raise ValueError(
                f"{printable(name)} has the type {label}, which clearformer does not read; it "
                f"reads {', '.join((*PLAIN, *BLOCKS))}"
            )
        block, block_bytes = self.library.GGML_QUANT_SIZES[self.library.GGMLQuantizationType(kind)]
        if shape[-1] % block:
            raise ValueError(
                f"{printable(name)} has rows of {shape[-1]} numbers, but {label} stores blocks of "
                f"{block}"
            )
        size = math.prod(shape) // block * block_bytes
        if start + size > len(self.map):
            raise ValueError(
                f"{printable(name)} ends at byte {start + size:,}, but the file has "
                f"{len(self.map):,} bytes: it is cut off or forged"
            )
        return Entry(label, shape, start, size)

    def _require_apart(self) -> None:
        """Tensors that share bytes could claim more numbers than the file has."""
        ordered = sorted(self.entries.items(), key=lambda item: item[1].start)
        for (one, first), (other, second) in pairwise(ordered):
            if first.start + first.size > second.start:
                raise ValueError(f"{printable(one)} and {printable(other)} share bytes")


class _Header:
    """A position in the header that does not leave it."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0
        self.end = min(len(data), limits.MAX_GGUF_HEADER_BYTES)

    def take(self, size: int) -> bytes:
        if size > self.end - self.at:
            raise ValueError(
                f"its header needs {size:,} bytes at byte {self.at:,}, but there are "
                f"{self.end - self.at:,}; the limit is {limits.MAX_GGUF_HEADER_BYTES:,} "
                f"(MAX_GGUF_HEADER_BYTES)"
            )
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def text(self, what: str) -> str:
        content = self.take(self.number("Q"))
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"{what} is not UTF-8 text") from None

    def value(self, kind: int, key: str) -> Value:
        if kind == ARRAY:
            return self._array(key)
        if kind == STRING:
            return self.text(printable(key))
        if kind == BOOL:
            (byte,) = self.take(1)
            if byte > 1:
                raise ValueError(f"{printable(key)} is {byte}, but it must be true or false")
            return bool(byte)
        if kind not in SCALARS:
            raise ValueError(f"{printable(key)} has the unknown type {kind}")
        value = self.number(SCALARS[kind])
        return _shortest(value) if SCALARS[kind] == "f" else value

    def _array(self, key: str) -> list[Any]:
        kind, count = self.number("I"), self.number("Q")
        if kind == ARRAY:
            raise ValueError(f"{printable(key)} is an array of arrays, which is not supported")
        _require_at_most(printable(key), count, limits.MAX_GGUF_ITEMS, "MAX_GGUF_ITEMS", "items")
        if kind == STRING:
            return [self.text(printable(key)) for _ in range(count)]
        if kind != BOOL and kind not in SCALARS:
            raise ValueError(f"{printable(key)} has items of the unknown type {kind}")
        dtype = np.dtype(f"<{SCALARS[kind]}" if kind in SCALARS else "u1")
        values: list[Any] = np.frombuffer(self.take(count * dtype.itemsize), dtype).tolist()
        return values


def _read_info(header: _Header) -> tuple[str, tuple[int, ...], int, int]:
    """Name, shape, type and offset of a tensor."""
    name = header.text("a tensor's name")
    axes = header.number("I")
    if not 1 <= axes <= MAX_AXES:
        raise ValueError(f"{printable(name)} has {axes} axes, but 1 to {MAX_AXES} are allowed")
    sizes = tuple(header.number("Q") for _ in range(axes))
    if not all(1 <= size <= 2**40 for size in sizes):
        raise ValueError(f"{printable(name)} has the shape {sizes[::-1]}, which is not possible")
    return name, sizes[::-1], header.number("I"), header.number("Q")


def _require_at_most(
    what: str, count: int, maximum: int, limit: str, noun: str | None = None
) -> None:
    if count > maximum:
        found = f"it has {count:,} {what}" if noun is None else f"{what} has {count:,} {noun}"
        raise ValueError(f"{found}, but at most {maximum:,} are allowed ({limit})")


def _shortest(value: float) -> float:
    """The shortest decimal that is the same number in float32: 1e-06, not 9.99999997e-07."""
    return float(str(np.float32(value)))
