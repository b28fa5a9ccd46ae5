"""Safetensors files from anyone: the header is checked to the last byte, the data is mapped.

A tensor is a view of the file until somebody changes it, so reading costs no memory of its own;
`let_go` gives back the pages of a tensor that has been copied. Nothing here runs code.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from clearformer import limits
from clearformer.safe_json import read_json

WEIGHTS, INDEX, PICKLED = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "C64": torch.complex64,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


class Weights(Protocol):
    """Tensors by name, wherever they lie."""

    def names(self) -> Iterable[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def tensor(self, name: str) -> Tensor: ...

    def let_go(self, name: str) -> None:
        """Whoever has copied a tensor says so, and its memory is free again."""


@dataclass(frozen=True)
class Entry:
    """Where a tensor lies in its file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int  # bytes from the beginning of the file
    end: int


class SafetensorsFile:
    """One safetensors file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if path.exists() and not path.is_file():  # a pipe would keep us waiting for ever
                raise ValueError("it is no file")
            with path.open("rb") as file:
                size = path.stat().st_size
                header, first = _header(file.read(8), file, size)
                self.entries, self.metadata = _entries(header, first, size)
                # Private: a page that somebody writes to becomes his own.
                self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except ValueError as problem:
            raise ValueError(f"{path} is no sound safetensors file: {problem}") from None
        except OSError as problem:
            raise ValueError(f"{path} cannot be read: {problem.strerror}") from None

    def names(self) -> Iterable[str]:
        return self.entries

    def shape(self, name: str) -> tuple[int, ...]:
        return self.entries[name].shape

    def tensor(self, name: str) -> Tensor:
        entry = self.entries[name]
        if entry.start == entry.end:
            return torch.zeros(entry.shape, dtype=entry.dtype)
        count = math.prod(entry.shape)
        if entry.start % entry.dtype.itemsize:  # allowed by the format; processors prefer not to
            own = bytearray(self.map[entry.start : entry.end])
            return torch.frombuffer(own, dtype=entry.dtype).view(entry.shape)
        flat = torch.frombuffer(self.map, dtype=entry.dtype, count=count, offset=entry.start)
        return flat.view(entry.shape)

    def let_go(self, name: str) -> None:
        entry = self.entries[name]
        page = mmap.PAGESIZE
        first, last = -(-entry.start // page) * page, entry.end // page * page
        if hasattr(mmap, "MADV_DONTNEED") and last > first:
            self.map.madvise(mmap.MADV_DONTNEED, first, last - first)


class Shards:
    """Several safetensors files that an index holds together."""

    def __init__(self, files: Mapping[str, SafetensorsFile]) -> None:
        self.owners = {name: file for file in files.values() for name in file.names()}

    def names(self) -> Iterable[str]:
        return self.owners

    def shape(self, name: str) -> tuple[int, ...]:
        return self.owners[name].shape(name)

    def tensor(self, name: str) -> Tensor:
        return self.owners[name].tensor(name)

    def let_go(self, name: str) -> None:
        self.owners[name].let_go(name)


def open_weights(folder: Path) -> Weights | None:
    """The weights of a Hugging Face folder, whole or in shards; None if there are none."""
    if (folder / WEIGHTS).exists():
        return SafetensorsFile(inside(folder, WEIGHTS))
    if (folder / INDEX).exists():
        return _shards(folder)
    return None


def inside(folder: Path, name: str) -> Path:
    """A file of the folder by its bare name; nothing leads out of the folder."""
    if Path(name).name != name or name in ("", ".", "..") or "\\" in name or "\0" in name:
        raise ValueError(f"{folder / INDEX} names {name!r:.80}, which is no plain file name")
    path = folder / name
    real, home = path.resolve(), folder.resolve()
    # The hub's own cache keeps files beside its snapshots and links to them.
    homes = (home, home.parents[1] / "blobs") if home.parent.name == "snapshots" else (home,)
    if real.parent not in homes:
        raise ValueError(
            f"{path!s:.300} is a link out of its folder, to {real!s:.300}: copy the file instead"
        )
    return path


def shown(name: str) -> str:
    """A name out of a file, as it can be printed: on one line, and not too long."""
    return (name if name.isprintable() else repr(name))[:100]


def _shards(folder: Path) -> Shards:
    path = folder / INDEX
    index = read_json(path)
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict) or not all(isinstance(file, str) for file in places.values()):
        raise ValueError(f"{path} has no weight_map from tensors to files")
    names = sorted(set(places.values()))
    if len(names) > limits.MAX_SHARDS:
        raise ValueError(
            f"{path} names {len(names):,} files, but {limits.MAX_SHARDS:,} are the most "
            f"(MAX_SHARDS)"
        )
    files = {name: SafetensorsFile(inside(folder, name)) for name in names}
    for name, file in files.items():
        listed = {tensor for tensor, place in places.items() if place == name}
        wrong = sorted(listed.symmetric_difference(file.names()))
        if wrong:
            where = "is listed for" if wrong[0] in listed else "is not listed but lies in"
            raise ValueError(
                f"{path}: {wrong[0]} {where} {name}, so the two do not belong together"
            )
    return Shards(files)


# --- the header ----------------------------------------------------------------------------


def _header(prefix: bytes, file: Any, size: int) -> tuple[dict[str, Any], int]:
    length = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or length > size - 8:
        raise ValueError(
            f"its header should have {length:,} bytes, and the file has {size:,}: it was cut, or "
            f"is something else"
        )
    if length > limits.MAX_HEADER_BYTES:
        raise ValueError(
            f"its header has {length:,} bytes, but {limits.MAX_HEADER_BYTES:,} are the most "
            f"(MAX_HEADER_BYTES)"
        )
    try:
        header = json.loads(file.read(length), object_pairs_hook=_once)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise ValueError("its header is no JSON") from None
    except ValueError as problem:
        if problem.args == (TWICE,):
            raise
        raise ValueError("its header has a number that is too long to be one") from None
    if not isinstance(header, dict):
        raise ValueError("its header is no object")
    return header, 8 + length


TWICE = "its header names something twice"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Two entries of one name: readers would not agree on which of them counts."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(TWICE)
    return found


def _entries(
    header: dict[str, Any], first: int, size: int
) -> tuple[dict[str, Entry], dict[str, str]]:
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise ValueError("its metadata is not from texts to texts")
    entries = {name: _entry(name, fields, first) for name, fields in header.items()}
    reached, before = first, "the header"
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].end)):
        if entry.start != reached:
            what = "overlaps" if entry.start < reached else "leaves a hole after"
            raise ValueError(f"{shown(name)} {what} {shown(before)}")
        reached, before = entry.end, name
    if reached != size:
        raise ValueError(f"its tensors end at byte {reached:,}, and the file at byte {size:,}")
    return entries, metadata


def _entry(name: str, fields: Any, first: int) -> Entry:
    if not isinstance(fields, dict) or set(fields) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{shown(name)} is described by {fields!r:.60}")
    kind, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(kind, str) or kind not in DTYPES:
        raise ValueError(
            f"{shown(name)} has the type {kind!r:.20}, which clearformer does not read; it reads "
            f"{', '.join(DTYPES)}"
        )
    for numbers in (shape, offsets):
        if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
            raise ValueError(f"{shown(name)} has a shape or a place of {numbers!r:.60}")
    if len(offsets) != 2 or len(shape) > 8:
        raise ValueError(f"{shown(name)} has {len(offsets)} offsets and {len(shape)} axes")
    dtype = DTYPES[kind]
    start, end = offsets
    if end - start != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{shown(name)} has shape {shape!s:.80}, but {end - start:,} bytes")
    return Entry(dtype, tuple(shape), first + start, first + end)
