"""The random generators, of every rank: begun at a known place, saved and put back.

Training itself draws from torch alone (dropout); Python's and NumPy's are kept for whoever adds
something that draws from them. The states are numbers: no pickle is needed for any of them.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from clearformer.distributed.process_group import Alone


def seed(number: int) -> None:
    """Begin all of them at a known place."""
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number % 2**32)


def begin(number: int, step: int, rank: int) -> None:
    """Generators that are a function of these three: every rank draws other numbers."""
    digest = hashlib.sha256(f"{number} {step} {rank}".encode()).digest()
    seed(int.from_bytes(digest[:8], "big") >> 1)


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
    if f"python{suffix}" in found:
        *words, has_gauss, gauss = found[f"python{suffix}"].tolist()
        random.setstate((3, tuple(int(word) for word in words), gauss if has_gauss else None))
    if f"numpy{suffix}" in found:
        *key, place, has_gauss, gauss = found[f"numpy{suffix}"].tolist()
        state = {"key": np.array(key, dtype=np.uint32), "pos": int(place)}
        whole = {"bit_generator": "MT19937", "state": state}
        np.random.set_state({**whole, "has_gauss": int(has_gauss), "gauss": gauss})


def _own(device: torch.device) -> dict[str, Tensor]:
    own = {"cpu": torch.get_rng_state(), "python": _python(), "numpy": _numpy()}
    if device.type == "cuda":
        own["cuda"] = torch.cuda.get_rng_state(device)
    return own


def _python() -> Tensor:
    """Its 624 words and the place in them, and the second of a pair of normal draws if one waits;
    all of them numbers that a float64 holds exactly."""
    _, words, gauss = random.getstate()
    return torch.tensor([*words, gauss is not None, gauss or 0.0], dtype=torch.float64)


def _numpy() -> Tensor:
    state = np.random.get_state(legacy=False)
    assert isinstance(state, dict)
    inner = state["state"]
    numbers = [*inner["key"].tolist(), inner["pos"], state["has_gauss"], state["gauss"]]
    return torch.tensor(numbers, dtype=torch.float64)
