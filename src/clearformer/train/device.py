"""Where a run computes: the fastest device there is, unless it is told."""

from __future__ import annotations

import torch


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
