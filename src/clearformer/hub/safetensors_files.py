"""Untrusted safetensors files, validated and then memory-mapped.

The `safetensors` library validates a header: its size, JSON, types, shapes and offsets. What the
library accepts and we refuse: a name that occurs twice, unknown fields, and types that torch cannot
read. A tensor is a view of the mapped file until it is written to, so reading costs no memory;
`release` frees the pages of a tensor that was copied. Nothing here runs code.
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
from safetensors import SafetensorError, safe_open
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
    """Tensors by name, from any kind of file."""

    def names(self) -> Iterable[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def tensor(self, name: str) -> Tensor: ...

    def release(self, name: str) -> None:
        """Free the memory of a tensor that was copied."""


@dataclass(frozen=True)
class Entry:
    """Where a tensor is in its file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int  # bytes from the beginning of the file
    end: int


class SafetensorsFile:
    """One safetensors file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if path.exists() and not path.is_file():  # a pipe would block
                raise ValueError("it is not a file")
            with path.open("rb") as file, safe_open(path, framework="pt"):
                length = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(length), object_pairs_hook=_without_repeats)
                self.metadata: dict[str, str] = header.pop("__metadata__", None) or {}
                self.entries = {
                    name: _entry(name, fields, 8 + length) for name, fields in header.items()
                }
                # Private: a page that is written to is copied.
                self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except SafetensorError as problem:
            reason = str(problem).removeprefix("Error while deserializing header: ")
            raise ValueError(
                f"{path} is not a valid safetensors file: {printable(reason)}"
            ) from None
        except ValueError as problem:
            raise ValueError(f"{path} is not a valid safetensors file: {problem}") from None
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
        if entry.start % entry.dtype.itemsize:  # the format allows unaligned tensors
            copy = bytearray(self.map[entry.start : entry.end])
            return torch.frombuffer(copy, dtype=entry.dtype).view(entry.shape)
        flat = torch.frombuffer(self.map, dtype=entry.dtype, count=count, offset=entry.start)
        return flat.view(entry.shape)

    def release(self, name: str) -> None:
        entry = self.entries[name]
        page = mmap.PAGESIZE
        first, last = -(-entry.start // page) * page, entry.end // page * page
        if hasattr(mmap, "MADV_DONTNEED") and last > first:
            self.map.madvise(mmap.MADV_DONTNEED, first, last - first)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Readers do not agree on which of two entries with one name counts."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("its header has two entries with the same name")
    return fields


def _entry(name: str, fields: dict[str, Any], data_start: int) -> Entry:
    if set(fields) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{printable(name)} has the unknown fields {fields!r:.60}")
    kind = fields["dtype"]
    if kind not in DTYPES:
        raise ValueError(
            f"{printable(name)} has the type {kind!r:.20}, which clearformer does not read; it "
            f"reads {', '.join(DTYPES)}"
        )
    if len(fields["shape"]) > 8:
        raise ValueError(
            f"{printable(name)} has {len(fields['shape'])} axes, but at most 8 are allowed"
        )
    start, end = fields["data_offsets"]
    return Entry(DTYPES[kind], tuple(fields["shape"]), data_start + start, data_start + end)


class Shards:
    """Several safetensors files with an index."""

    def __init__(self, files: Mapping[str, SafetensorsFile]) -> None:
        self.owners = {name: file for file in files.values() for name in file.names()}

    def names(self) -> Iterable[str]:
        return self.owners

    def shape(self, name: str) -> tuple[int, ...]:
        return self.owners[name].shape(name)

    def tensor(self, name: str) -> Tensor:
        return self.owners[name].tensor(name)

    def release(self, name: str) -> None:
        self.owners[name].release(name)


def open_weights(folder: Path) -> Weights | None:
    """The weights of a Hugging Face folder, in one file or in shards; None if there are none."""
    if (folder / WEIGHTS).exists():
        return SafetensorsFile(inside(folder, WEIGHTS))
    if (folder / INDEX).exists():
        return _shards(folder)
    return None


def inside(folder: Path, name: str) -> Path:
    """A file of the folder by its name; ValueError if it leads out of the folder."""
    if Path(name).name != name or name in ("", ".", "..") or "\\" in name or "\0" in name:
        raise ValueError(f"{folder / INDEX} names {name!r:.80}, which is not a plain file name")
    path = folder / name
    real, home = path.resolve(), folder.resolve()
    # The hub's cache keeps files in `blobs` and links to them from `snapshots`.
    homes = (home, home.parents[1] / "blobs") if home.parent.name == "snapshots" else (home,)
    if real.parent not in homes:
        raise ValueError(
            f"{path!s:.300} is a link out of its folder, to {real!s:.300}: copy the file instead"
        )
    return path


def printable(text: str) -> str:
    """Untrusted text for a message: on one line, and at most 100 characters."""
    return (text if text.isprintable() else repr(text))[:100]


def _shards(folder: Path) -> Shards:
    path = folder / INDEX
    index = read_json(path)
    file_of = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(file_of, dict) or not all(isinstance(file, str) for file in file_of.values()):
        raise ValueError(f"{path} has no weight_map from tensors to files")
    names = sorted(set(file_of.values()))
    if len(names) > limits.MAX_SHARDS:
        raise ValueError(
            f"{path} names {len(names):,} files, but the limit is {limits.MAX_SHARDS:,} "
            f"(MAX_SHARDS)"
        )
    files = {name: SafetensorsFile(inside(folder, name)) for name in names}
    for name, file in files.items():
        listed = {tensor for tensor, file_name in file_of.items() if file_name == name}
        wrong = sorted(listed.symmetric_difference(file.names()))
        if wrong:
            where = "is listed for" if wrong[0] in listed else "is not listed but stored in"
            raise ValueError(
                f"{path}: {wrong[0]} {where} {name}, so the two do not belong together"
            )
    return Shards(files)
