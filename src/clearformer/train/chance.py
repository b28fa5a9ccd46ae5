"""The states of all random generators as tensors, so that a continued run draws what it would
have drawn.

Training itself draws from torch alone (dropout); Python's and NumPy's are kept for whoever adds
something that draws from them. The states are integers: no pickle is needed for any of them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

PREFIX = "generator."


def seed(number: int) -> None:
    """Begin all of them at a known place."""
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number % 2**32)


def capture() -> dict[str, Tensor]:
    """Every generator's state by name."""
    found = {"cpu": torch.get_rng_state(), "python": _python(), "numpy": _numpy()}
    if torch.cuda.is_available():
        states = torch.cuda.get_rng_state_all()
        found |= {f"cuda.{device}": state for device, state in enumerate(states)}
    return {f"{PREFIX}{name}": state for name, state in found.items()}


def restore(tensors: Mapping[str, Tensor]) -> None:
    """Put the states back; a checkpoint from before one was kept leaves that one alone."""
    found = {k.removeprefix(PREFIX): v for k, v in tensors.items() if k.startswith(PREFIX)}
    torch.set_rng_state(found["cpu"])
    for device in range(torch.cuda.device_count()):
        if f"cuda.{device}" in found:
            torch.cuda.set_rng_state(found[f"cuda.{device}"], device)
    if "python" in found:
        *words, has_gauss, gauss = found["python"].tolist()
        random.setstate((3, tuple(int(word) for word in words), gauss if has_gauss else None))
    if "numpy" in found:
        *key, place, has_gauss, gauss = found["numpy"].tolist()
        state = {"key": np.array(key, dtype=np.uint32), "pos": int(place)}
        whole = {"bit_generator": "MT19937", "state": state}
        np.random.set_state({**whole, "has_gauss": int(has_gauss), "gauss": gauss})


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
