"""Angles that grow with position: what sinusoids and rotations are made of.

Angles are computed in float64 whatever the model's precision, and cast only once they are sines
and cosines: at position 100,000 an angle in float32 is off by a hundredth, and bfloat16 cannot
tell position 256 from 257.

Axes: T tokens, D head width, E model width.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

Frequencies = Callable[[Tensor], Tensor]  # angles a position (D/2,), changed


def unchanged(frequencies: Tensor) -> Tensor:
    return frequencies


def slower(factor: float) -> Frequencies:
    """All of them by the same factor: longer texts in the range of angles that was learned."""
    return lambda frequencies: frequencies / factor


def slower_below(factor: float, low: float, high: float, length: int) -> Frequencies:
    """Those that turn fewer than `low` times over `length` tokens by `factor`, those that turn
    more than `high` times not at all, and in between a mixture (Llama 3).
    """

    def change(frequencies: Tensor) -> Tensor:
        turns = length * frequencies / (2 * math.pi)  # (D/2,)
        fast = ((turns - low) / (high - low)).clamp(0, 1)
        return (1 - fast) * frequencies / factor + fast * frequencies

    return change


def angles_of(
    positions: Tensor, width: int, base: float, change: Frequencies = unchanged
) -> Tensor:
    """position / base^(2i / width) for i = 0 ... width/2 - 1: (..., T) -> (..., T, width/2)."""
    if positions.device.type == "mps":
        positions = positions.cpu()  # Apple's GPUs have no float64
    steps = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
    return positions[..., None].double() * change(base ** (-steps / width))


def cast(waves: Tensor, like: Tensor) -> Tensor:
    """To the dtype first: the device may have no float64."""
    return waves.to(like.dtype).to(like.device)


Waves = Callable[[Tensor, Tensor], Tensor]  # sines and cosines (..., E/2) to (..., E)


def taking_turns(sine: Tensor, cosine: Tensor) -> Tensor:
    """As the paper writes it: sine, cosine, sine, ..."""
    return torch.stack((sine, cosine), dim=-1).flatten(-2)  # (..., E)


def in_halves(sine: Tensor, cosine: Tensor) -> Tensor:
    """As the paper's code, Marian and Transformer-XL have it: all sines, then all cosines."""
    return torch.cat((sine, cosine), dim=-1)  # (..., E)
