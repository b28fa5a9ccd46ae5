"""Memory fragmentation of malloc and the kernel cache of oneDNN, kept small.

glibc keeps tensors below 32 MB in one heap. Freed tensors between live ones leave gaps, which in
training grow to half of all memory. A tensor with its own pages (mmap) is returned to the system
as soon as it is freed, at the price of asking for the pages again. So this is used where memory is
short, and for large tensors only.

In half precision oneDNN compiles a kernel of a third of a megabyte for each shape of each product
and caches a thousand of them. Where every batch has another length, that is 340 MB; a model with
one length needs some dozens.
"""

from __future__ import annotations

import ctypes
import os
import sys

MMAP_BYTES = 2**21  # from this size on a tensor has its own pages
# Free bytes that stay at the end of the heap. By default glibc returns all but 128 KB, so that each
# step of a small model would request all of its memory again.
TRIM_BYTES = 2**28
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD = -3, -1
# Read once, before the first kernel: by oneDNN, and by torch's own cache in front of it.
CAPACITIES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
KERNELS = 64


def limit_fragmentation() -> bool:
    """Apply to this process from now on; return whether its C library supports it."""
    for name in CAPACITIES:
        os.environ.setdefault(name, str(KERNELS))
    if not sys.platform.startswith("linux"):
        return False
    try:
        library = ctypes.CDLL(None)
        library.mallopt(M_TRIM_THRESHOLD, TRIM_BYTES)
        return bool(library.mallopt(M_MMAP_THRESHOLD, MMAP_BYTES) == 1)
    except (AttributeError, OSError):
        return False
