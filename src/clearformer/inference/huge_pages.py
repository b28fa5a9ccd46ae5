"""Where a finished model's weights lie: in memory that the system hands out in large pages.

Reading half a gigabyte in pages of four kilobytes looks up 120,000 addresses, and on a virtual
machine twice, for its pages are themselves looked up; in pages of two megabytes it is 240. A step
of decoding does little else than to read all weights once, so it gets faster, and nothing else
changes: the numbers are the same bits. Linux hands such pages out on request; elsewhere, and
where it does not, everything stays as it is.

Axes: N bytes.
"""

import mmap

import torch
from torch import Tensor, nn

PAGE = 2**21  # bytes of a large page on most machines
WORTH = 2**24  # bytes of weights: fewer may well stay in the processor's own memory
LINE = 64  # bytes that a processor reads at a time: every tensor begins with a line


def settle(model: nn.Module) -> nn.Module:
    """Move the weights that a model has on the CPU to large pages, in place.

    Names, values and what is shared stay. A tensor is freed as soon as it is copied, so moving
    takes the memory of the largest one, and not that of a second model.
    """
    tensors = [parameter for parameter in model.parameters() if parameter.device.type == "cpu"]
    total = sum(map(_room, tensors))
    room = _large_pages(total) if total >= WORTH else None  # (N,)
    if room is None:
        return model
    start = 0
    for tensor in tensors:
        place = room[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        tensor.data = place.copy_(tensor.data)
        start += _room(tensor)
    return model


def _room(tensor: Tensor) -> int:
    return tensor.nbytes + -tensor.nbytes % LINE


def _large_pages(size: int) -> Tensor | None:
    """So many bytes of memory, as a tensor that holds it; None where there are no large pages."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    try:
        memory = mmap.mmap(-1, size + PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
    except OSError:  # no memory left, or a system that was built without large pages
        return None
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    first = -whole.data_ptr() % PAGE  # a large page begins at a multiple of its size
    return whole[first : first + size]  # (N,)
