"""No angle is rounded before its sine is taken, however far the position and small the dtype."""

import math

import pytest
import torch
from torch import nn

from clearformer.core.angles import slower, slower_below, unchanged
from clearformer.core.embedding import Embedding
from clearformer.core.positions import NeighbourRotary, Rotary, Sinusoidal

FAR = [0, 1, 257, 4_097, 16_385, 131_071, 1_000_003]
WIDTH = 8
LLAMA = {"factor": 8.0, "low": 1.0, "high": 4.0, "length": 8192}


def llama(frequency):
    """The rule of Llama 3.1's released code, for one frequency."""
    wavelength = 2 * math.pi / frequency
    if wavelength < LLAMA["length"] / LLAMA["high"]:
        return frequency
    if wavelength > LLAMA["length"] / LLAMA["low"]:
        return frequency / LLAMA["factor"]
    smooth = LLAMA["length"] / wavelength - LLAMA["low"]
    smooth /= LLAMA["high"] - LLAMA["low"]
    return (1 - smooth) * frequency / LLAMA["factor"] + smooth * frequency


SCALINGS = {
    "none": (unchanged, lambda frequency: frequency),
    "linear": (slower(4.0), lambda frequency: frequency / 4),
    "llama": (slower_below(**LLAMA), llama),
}
PAIRS = {
    Rotary: [(d, d + WIDTH // 2) for d in range(WIDTH // 2)],
    NeighbourRotary: [(2 * d, 2 * d + 1) for d in range(WIDTH // 2)],
}


def turned(x, place, rule, pairs, base=10_000.0):
    """Eq. 19 for one vector, number by number."""
    y = [0.0] * WIDTH
    for d, (first, second) in enumerate(pairs):
        angle = place * rule(base ** (-2 * d / WIDTH))
        y[first] = x[first] * math.cos(angle) - x[second] * math.sin(angle)
        y[second] = x[second] * math.cos(angle) + x[first] * math.sin(angle)
    return y


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("kind", PAIRS)
def test_rotary_is_exact_at_far_positions(kind, scaling, dtype):
    change, rule = SCALINGS[scaling]
    x = torch.randn(2, 3, len(FAR), WIDTH, dtype=dtype)
    given = kind(change=change).turn(x, torch.tensor(FAR))
    assert given.dtype == dtype
    expected = torch.tensor(
        [
            [[turned(v, place, rule, PAIRS[kind]) for v, place in zip(rows, FAR, strict=True)]
             for rows in heads]
            for heads in x.tolist()
        ],
        dtype=torch.float64,
    )  # fmt: skip
    # What a product of two numbers of this type is rounded by; an angle's own error would grow
    # with the position.
    near = {torch.float64: 1e-9, torch.float32: 1e-6, torch.bfloat16: 0.05}[dtype]
    torch.testing.assert_close(given.double(), expected, atol=near, rtol=0)


def test_rotary_takes_a_position_of_each_sequence():
    """Also where there are as many sequences as heads, or as tokens."""
    for batch, heads, tokens in [(3, 3, 5), (3, 2, 3), (2, 2, 2), (1, 4, 5)]:
        x = torch.randn(batch, heads, tokens, WIDTH, dtype=torch.float64)
        places = torch.randint(1000, (batch, tokens))
        for rotary in (Rotary(), NeighbourRotary()):
            expected = [rotary.turn(x[b : b + 1], places[b])[0] for b in range(batch)]
            torch.testing.assert_close(
                rotary.turn(x, places), torch.stack(expected), rtol=0, atol=0
            )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_sinusoids_are_exact_at_far_positions(dtype):
    table = nn.Embedding(3, WIDTH).to(dtype)
    embedding = Embedding(table, position=Sinusoidal(WIDTH)).to(dtype)
    for place in FAR:
        given = embedding(torch.tensor([[1]]), start=place)[0, 0]
        assert given.dtype == dtype
        angles = [place / 10_000 ** (2 * d / WIDTH) for d in range(WIDTH // 2)]
        waves = [wave(angle) for angle in angles for wave in (math.sin, math.cos)]
        expected = table.weight[1].double() + torch.tensor(waves, dtype=torch.float64)
        near = 1e-9 if dtype == torch.float64 else 3e-7
        torch.testing.assert_close(given.double(), expected, atol=near, rtol=0)
