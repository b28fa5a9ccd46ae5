"""The process holds what its tensors take, and little more: a heap without gaps, few kernels.

glibc keeps tensors below 32 MB in one heap, where what is freed between two that stay is a gap.
In training the gaps grow to half of all memory. With pages of its own, a tensor's memory goes
back to the system the moment it is freed, at the price of asking for it again. So it is done where
memory is short, and for large tensors: small ones stay in the heap, whose gaps are then small too.

In half precision oneDNN writes a kernel of its own, a third of a megabyte, for each size of each
product, and keeps a thousand of them. Where every batch has another length, that is 340 MB; a
model with one length needs some dozens.
"""

from __future__ import annotations

import ctypes
import os
import sys

OWN_PAGES = 2**21  # bytes from which a tensor has its own
# Free bytes at the heap's end that stay there. Without a word about it glibc would give back all
# but 128 KB, time and again: each step of a small model then asks for all of its memory anew.
SPARE = 2**28
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD = -3, -1
# Read once, when the first kernel is written: by oneDNN, and by torch's own shelf in front of it.
CAPACITIES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
KERNELS = 64


def keep_small() -> bool:
    """From now on, in this process; whether its C library can do without gaps."""
    for name in CAPACITIES:
        os.environ.setdefault(name, str(KERNELS))
    if not sys.platform.startswith("linux"):
        return False
    try:
        library = ctypes.CDLL(None)
        library.mallopt(M_TRIM_THRESHOLD, SPARE)
        return bool(library.mallopt(M_MMAP_THRESHOLD, OWN_PAGES) == 1)
    except (AttributeError, OSError):
        return False
