"""Device and CPU threads of a run."""

from __future__ import annotations

import os

import torch

from clearformer import openmp

THREADS_PER_CORE, ALWAYS_ALLOWED = 4, 64  # more threads only wait for each other


def device_of(name: str) -> torch.device:
    """The device of this name; `auto` is the fastest that this machine has."""
    if name != "auto":
        try:
            torch.empty(0, device=name)
        except (RuntimeError, AssertionError) as problem:
            reason = str(problem).splitlines()[0].split(" device type at start")[0]
            raise ValueError(
                f"device is {name!r:.60}, which this torch cannot use ({reason:.200}): choose cpu, "
                f"or auto for the fastest available"
            ) from None
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def set_threads(requested: int) -> int:
    """Use `requested` CPU threads, up to a limit for this machine; return how many.

    Beside other programs, several threads wait for each other as `openmp` says.

    A config may come from a larger machine, or be hostile: a process that cannot start a thread
    is aborted without a message.
    """
    threads = min(requested, max(ALWAYS_ALLOWED, THREADS_PER_CORE * (os.cpu_count() or 1)))
    torch.set_num_threads(threads)
    if threads > 1:
        openmp.watch()
    return threads
