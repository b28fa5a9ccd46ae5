"""The generators that dropout draws from: one for each rank, saved and put back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

from clearformer.train.together import Alone


def begin(seed: int, step: int, rank: int) -> None:
    """Generators that are a function of these three: every rank draws other numbers."""
    digest = hashlib.sha256(f"{seed} {step} {rank}".encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def states(device: torch.device, ranks: Alone) -> dict[str, Tensor]:
    """The state of every rank's generators: `cpu` of the leader, `cpu.1` of rank 1, ..."""
    found = {}
    for kind, state in _own(device).items():
        for rank, each in enumerate(ranks.stacked(state)):
            found[f"{kind}.{rank}" if rank else kind] = each.clone()
    return found


def restore(found: Mapping[str, Tensor], device: torch.device, rank: int) -> None:
    """Put back what `states` gave; a generator that was not saved stays as it is."""
    suffix = f".{rank}" if rank else ""
    torch.set_rng_state(found[f"cpu{suffix}"])
    if device.type == "cuda" and f"cuda{suffix}" in found:
        torch.cuda.set_rng_state(found[f"cuda{suffix}"], device)


def _own(device: torch.device) -> dict[str, Tensor]:
    own = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        own["cuda"] = torch.cuda.get_rng_state(device)
    return own
