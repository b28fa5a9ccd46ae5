"""Huge pages for the weights of a model.

Reading half a gigabyte in pages of 4 KB needs 120,000 address translations, on a virtual machine
twice as many; in pages of 2 MB it needs 240. A decoding step does little more than read all weights
once, so it gets faster; the results are bitwise the same. Linux provides huge pages on request;
without them nothing changes.

`use_huge_pages` copies the parameters of a model there. Matrices that a library packed are no
tensors that could be moved: `collapse` asks the system to do it in place.

Axes: N bytes.
"""

import ctypes
import mmap
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor, nn

PAGE = 2**21  # bytes of a huge page on most machines
MIN_BYTES = 2**24  # smaller models may fit into the CPU cache
LINE = 64  # bytes of a cache line: tensors are aligned to it
SMALL = mmap.PAGESIZE  # bytes of an ordinary page
MADV_COLLAPSE = 25  # of Linux, from 6.1 on
FULL = 0.9  # share of a huge page that is in use already: the rest is new memory


def use_huge_pages(model: nn.Module) -> nn.Module:
    """Move the weights of a model on the CPU to huge pages, in place.

    Names, values and tied weights do not change. Each tensor is freed once it is copied.
    """
    tensors = [parameter for parameter in model.parameters() if parameter.device.type == "cpu"]
    total = sum(map(_aligned_bytes, tensors))
    memory = _large_pages(total) if total >= MIN_BYTES else None  # (N,)
    if memory is None:
        return model
    start = 0
    for tensor in tensors:
        copy = memory[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        tensor.data = copy.copy_(tensor.data)
        start += _aligned_bytes(tensor)
    return model


def collapse(size: int) -> bool:
    """Move what this process holds in memory of its own to huge pages, in place, where it is dense.

    `size` is the number of bytes that are worth it; few are not. Returns whether memory was moved.
    """
    if size < MIN_BYTES:
        return False
    moved = False
    try:
        with open("/proc/self/maps") as maps, open("/proc/self/pagemap", "rb", 0) as pages:
            madvise = ctypes.CDLL(None, use_errno=True).madvise
            for start, end in _anonymous(maps.read()):
                for first, last in _dense(pages, start, end):
                    length = ctypes.c_size_t(last - first)
                    moved |= madvise(ctypes.c_void_p(first), length, MADV_COLLAPSE) == 0
    except (OSError, AttributeError, ValueError):  # not Linux, or it does not tell
        return False
    return moved


def _anonymous(maps: str) -> Iterator[tuple[int, int]]:
    """Start and end of each region of private, writable memory without a file, in huge pages."""
    for line in maps.splitlines():
        addresses, access, _, _, inode, *name = line.split(maxsplit=5)
        start, end = (int(each, 16) for each in addresses.split("-"))
        start, end = start + -start % PAGE, end - end % PAGE
        if access == "rw-p" and inode == "0" and name in ([], ["[heap]"]) and start < end:
            yield start, end


def _dense(pages: BinaryIO, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Start and end of each run of huge pages of this region that are nearly full."""
    pages.seek(start // SMALL * 8)
    entries = np.frombuffer(pages.read((end - start) // SMALL * 8), np.uint64)
    present = (entries >> np.uint64(63)).reshape(-1, PAGE // SMALL)
    dense = (present.mean(axis=1) >= FULL).astype(np.int8)
    edges = np.flatnonzero(np.diff(dense, prepend=0, append=0)).tolist()
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        yield start + first * PAGE, start + last * PAGE


def _aligned_bytes(tensor: Tensor) -> int:
    return tensor.nbytes + -tensor.nbytes % LINE


def _large_pages(size: int) -> Tensor | None:
    """A tensor of `size` bytes in huge pages; None if there are none."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    try:
        memory = mmap.mmap(-1, size + PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
    except OSError:  # no memory left, or a kernel without huge pages
        return None
    buffer = torch.frombuffer(memory, dtype=torch.uint8)
    first = -buffer.data_ptr() % PAGE  # huge pages are aligned to their size
    return buffer[first : first + size]  # (N,)
