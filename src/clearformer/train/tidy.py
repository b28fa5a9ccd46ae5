"""A heap without gaps: the process holds what its tensors take, and no more.

glibc keeps tensors below 32 MB in one heap, where what is freed between two that stay is a gap.
In training the gaps grow to half of all memory. With pages of its own, a tensor's memory goes
back to the system the moment it is freed, at the price of asking for it again: some percent of
a small model's time. So it is done where memory is short.
"""

from __future__ import annotations

import ctypes
import sys

OWN_PAGES = 2**20  # bytes from which a tensor has its own
M_MMAP_THRESHOLD = -3


def keep_heap_small() -> bool:
    """From now on, in this process; whether this C library can."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        return ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, OWN_PAGES) == 1
    except (AttributeError, OSError):
        return False
