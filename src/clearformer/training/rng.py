"""Random generators of all ranks: seeding, saving and restoring.

Training draws from torch alone (dropout); those of Python and NumPy are saved for user code. The
states are tensors of numbers: no pickle is needed.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from clearformer.distributed.process_group import ProcessGroup


def seed(number: int) -> None:
    """Seed all generators."""
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number % 2**32)


def seed_rank(number: int, step: int, rank: int) -> None:
    """Seed all generators by seed, step and rank: every rank draws other numbers."""
    digest = hashlib.sha256(f"{number} {step} {rank}".encode()).digest()
    seed(int.from_bytes(digest[:8], "big") >> 1)


def states(device: torch.device, group: ProcessGroup) -> dict[str, Tensor]:
    """The generator states of all ranks: `cpu` of rank 0, `cpu.1` of rank 1, ..."""
    result = {}
    for kind, state in _states(device).items():
        for rank, each in enumerate(group.stack(state)):
            result[f"{kind}.{rank}" if rank else kind] = each.clone()
    return result


def restore(saved: Mapping[str, Tensor], device: torch.device, rank: int) -> None:
    """Restore what `states` returned; a generator that was not saved stays as it is."""
    suffix = f".{rank}" if rank else ""
    torch.set_rng_state(saved[f"cpu{suffix}"])
    if device.type == "cuda" and f"cuda{suffix}" in saved:
        torch.cuda.set_rng_state(saved[f"cuda{suffix}"], device)
    if f"python{suffix}" in saved:
        *words, has_gauss, gauss = saved[f"python{suffix}"].tolist()
        random.setstate((3, tuple(int(word) for word in words), gauss if has_gauss else None))
    if f"numpy{suffix}" in saved:
        *key, position, has_gauss, gauss = saved[f"numpy{suffix}"].tolist()
        state = {"key": np.array(key, dtype=np.uint32), "pos": int(position)}
        whole = {"bit_generator": "MT19937", "state": state}
        np.random.set_state({**whole, "has_gauss": int(has_gauss), "gauss": gauss})


def _states(device: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state(), "python": _python(), "numpy": _numpy()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _python() -> Tensor:
    """Python's 624 words and position, and the pending normal draw; exact in float64."""
    _, words, gauss = random.getstate()
    return torch.tensor([*words, gauss is not None, gauss or 0.0], dtype=torch.float64)


def _numpy() -> Tensor:
    state = np.random.get_state(legacy=False)
    assert isinstance(state, dict)
    inner = state["state"]
    numbers = [*inner["key"].tolist(), inner["pos"], state["has_gauss"], state["gauss"]]
    return torch.tensor(numbers, dtype=torch.float64)
