"""Where a run computes: the fastest device there is, unless it is told, and in how many threads."""

from __future__ import annotations

import os

import torch

THREADS_A_CORE, ALWAYS = 4, 64  # more threads than that only wait for each other


def device_of(name: str) -> torch.device:
    if name != "auto":
        try:
            torch.empty(0, device=name)
        except (RuntimeError, AssertionError) as problem:
            raise ValueError(
                f"train.device is {name!r}, which this torch cannot use "
                f"({str(problem).splitlines()[0][:80]}): choose auto, cpu, cuda or mps"
            ) from None
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def set_threads(wanted: int) -> int:
    """Use so many CPU threads, but no more than this machine has use for; returns how many.

    A config may come from a larger machine, or from anyone: a system that cannot start a thread
    ends the process, and nothing could be said of it.
    """
    threads = min(wanted, max(ALWAYS, THREADS_A_CORE * (os.cpu_count() or 1)))
    torch.set_num_threads(threads)
    return threads
