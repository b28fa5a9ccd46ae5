"""Huge pages for the weights of a model.

Reading half a gigabyte in pages of 4 KB needs 120,000 address translations, on a virtual machine
twice as many; in pages of 2 MB it needs 240. A decoding step does little more than read all weights
once, so it gets faster; the results are bitwise the same. Linux provides huge pages on request;
without them nothing changes.

Axes: N bytes.
"""

import mmap

import torch
from torch import Tensor, nn

PAGE = 2**21  # bytes of a huge page on most machines
MIN_BYTES = 2**24  # smaller models may fit into the CPU cache
LINE = 64  # bytes of a cache line: tensors are aligned to it


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
