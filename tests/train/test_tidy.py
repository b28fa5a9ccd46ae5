"""With pages of its own, what a tensor took goes back to the system."""

import subprocess
import sys

import pytest

CHILD = """
import sys, torch
from clearformer.train.tidy import keep_heap_small
if sys.argv[1] == "tidy":
    assert keep_heap_small()
torch.zeros(2**22).clone()  # teaches the C library that 16 MB belong into the heap
big = [torch.ones(2**19) for _ in range(64)]
stays = big[1::2]
del big
import re
print(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has this setting")
def test_gaps_between_tensors_are_given_back():
    plain, tidy = (
        int(
            subprocess.run(
                [sys.executable, "-c", CHILD, how], capture_output=True, text=True, check=True
            ).stdout
        )
        for how in ("plain", "tidy")
    )
    if plain < tidy + 2000:
        pytest.skip("this C library leaves no gaps")
    assert plain - tidy > 50_000  # of 64 MB that were freed in between
