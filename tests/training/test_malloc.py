"""Allocator settings: freed memory returns to the system, and few kernels are cached."""

import os
import subprocess
import sys

import pytest

from clearformer.training import malloc

CHILD = """
import sys, torch
from clearformer.training.malloc import limit_fragmentation
if sys.argv[1] == "tidy":
    assert limit_fragmentation()
torch.zeros(2**22).clone()  # teaches the C library that 16 MB belong into the heap
big = [torch.ones(2**19) for _ in range(64)]
stays = big[1::2]
del big
import re
print(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has this setting")
def test_freed_memory_is_returned_to_system():
    plain, small = (
        int(
            subprocess.run(
                [sys.executable, "-c", CHILD, how], capture_output=True, text=True, check=True
            ).stdout
        )
        for how in ("plain", "tidy")
    )
    if plain < small + 2000:
        pytest.skip("this C library leaves no gaps")
    assert plain - small > 50_000  # of 64 MB that were freed in between


def test_kernel_cache_is_limited_unless_configured(monkeypatch):
    monkeypatch.setenv(malloc.CAPACITIES[0], "")  # so that it is restored at the end
    del os.environ[malloc.CAPACITIES[0]]
    monkeypatch.setenv(malloc.CAPACITIES[1], "7")
    monkeypatch.setattr(sys, "platform", "other")  # does not change this process's heap
    assert not malloc.limit_fragmentation()
    assert [os.environ[name] for name in malloc.CAPACITIES] == [str(malloc.KERNELS), "7"]
