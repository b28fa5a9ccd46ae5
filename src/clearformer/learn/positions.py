"""Exercises of chapter 7: encodings, rotary positions, ALiBi (eq. 18, 19 and 21)."""

from __future__ import annotations

import torch
from torch import Tensor

from clearformer.learn.exercise import Case, Exercise, Mistake, draw


def sinusoids(length: int, width: int) -> Tensor:
    positions = torch.arange(length)[:, None]  # (T, 1)
    pairs = torch.arange(0, width, 2)  # (E/2,): 2c of eq. 18
    angles = positions / 10000 ** (pairs / width)  # (T, E/2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)  # (T, E)


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    angles = positions[:, None] / 10000 ** (torch.arange(half) / half)  # (T, D/2)
    first, second = x[..., :half], x[..., half:]
    return torch.cat(
        (
            first * angles.cos() - second * angles.sin(),
            second * angles.cos() + first * angles.sin(),
        ),
        dim=-1,
    )  # (B, T, D)


def alibi(slopes: Tensor, length: int) -> Tensor:
    positions = torch.arange(length)
    distance = (positions[:, None] - positions).abs()  # (T, T)
    return -slopes[:, None, None] * distance  # (H, T, T)


def _sizes() -> list[Case]:
    return [(7, 8), (40, 6)]


def _rotated() -> list[Case]:
    return [(draw(2, 5, 8), torch.arange(5)), (draw(1, 4, 6, seed=1), torch.arange(20, 24))]


def _slopes() -> list[Case]:
    return [(torch.tensor([0.5, 0.25]), 5), (torch.tensor([0.1, 0.2, 0.4]), 4)]


def _waves(length: int, width: int, exponent: float, base: float = 10000.0) -> Tensor:
    pairs = torch.arange(0, width, 2) / width * exponent
    return torch.arange(length)[:, None] / base**pairs


def _turned(x: Tensor, angles: Tensor) -> Tensor:
    """Pairs of numbers half a width apart, rotated by angles (..., D/2)."""
    first, second = x.chunk(2, dim=-1)
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def _neighbours(x: Tensor, positions: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    angles = positions[:, None] / 10000 ** (torch.arange(half) / half)
    first, second = x[..., 0::2], x[..., 1::2]
    cosine, sine = angles.cos(), angles.sin()
    rotated = first * cosine - second * sine, second * cosine + first * sine
    return torch.stack(rotated, dim=-1).flatten(-2)


def _frequencies(width: int) -> Tensor:
    return 10000.0 ** (-torch.arange(width // 2) / (width // 2))


EXERCISES = (
    Exercise(
        number="7.1",
        title="Eq. 18: sines and cosines",
        task="Return the position encodings of positions 0 to length - 1 as (length, width), width "
        "even: number 2c is sin(i / 10000^(2c/width)), number 2c + 1 the cosine of the same angle.",
        answer=sinusoids,
        cases=_sizes,
        hints=(
            "First the table of angles: a row for each position, a column for each pair.",
            "The exponents are 0, 2, 4, ... divided by width.",
            "torch.stack((sin, cos), dim=-1).flatten(1) puts them in turns.",
        ),
        mistakes=(
            Mistake(
                lambda length, width: torch.cat(
                    ((a := _waves(length, width, 1.0)).sin(), a.cos()), dim=1
                ),
                "all sines, then all cosines: as the paper's code has it, and good for learning; "
                "eq. 18 has them in turns",
            ),
            Mistake(
                lambda length, width: torch.stack(
                    ((a := _waves(length, width, 0.5)).sin(), a.cos()), dim=-1
                ).flatten(1),
                "the frequencies fall half as fast: the exponent is 2c / width, and c counts pairs",
            ),
            Mistake(
                lambda length, width: torch.stack(
                    ((a := _waves(length, width, 1.0)).cos(), a.sin()), dim=-1
                ).flatten(1),
                "sine and cosine have changed places: the even numbers are sines",
            ),
            Mistake(
                lambda length, width: torch.where(
                    torch.arange(width) % 2 == 0,
                    (
                        a := torch.arange(length)[:, None] / 10000 ** (torch.arange(width) / width)
                    ).sin(),
                    a.cos(),
                ),
                "each number has a frequency of its own: 2c and 2c + 1 are sine and cosine of the "
                "same angle",
            ),
            Mistake(
                lambda length, width: torch.stack(
                    ((a := _waves(length + 1, width, 1.0)[1:]).sin(), a.cos()), dim=-1
                ).flatten(1),
                "the first position is 1: it must be 0, with sines 0 and cosines 1",
            ),
        ),
    ),
    Exercise(
        number="7.2",
        title="Eq. 19: rotary positions",
        task="x is (B, T, D), D even, positions is (T,). Rotate the pair of numbers (d, d + D/2) "
        "of the token at position i by the angle i / 10000^(d / (D/2)), for d = 0 ... D/2 - 1: "
        "(a, b) becomes (a cos - b sin, b cos + a sin).",
        answer=rotate,
        cases=_rotated,
        hints=(
            "Cut x into its two halves: they hold the first and the second number of each pair.",
            "The angles are a table (T, D/2), which broadcasts over the batch.",
            "Compute both new halves from the old ones, then torch.cat along the last axis.",
        ),
        mistakes=(
            Mistake(
                _neighbours,
                "neighbours 2d and 2d + 1 are paired, as in the paper: the task pairs d with "
                "d + D/2, as Llama's converted checkpoints do; mixing the two is a known bug",
            ),
            Mistake(
                lambda x, positions: _turned(x, -positions[:, None] * _frequencies(x.shape[-1])),
                "the rotation goes the other way: (a, b) becomes (a cos - b sin, b cos + a sin)",
            ),
            Mistake(
                lambda x, positions: _turned(
                    x, torch.arange(len(positions))[:, None] * _frequencies(x.shape[-1])
                ),
                "the positions are ignored: the first token need not stand at 0, as when a cache "
                "holds what came before",
            ),
            Mistake(
                lambda x, positions: _turned(x, positions[:, None] * torch.ones(x.shape[-1] // 2)),
                "every pair turns equally fast: pair d must turn by i / 10000^(d / (D/2))",
            ),
            Mistake(
                lambda x, positions: _turned(
                    x, positions[:, None] * _frequencies(x.shape[-1]) ** 0.5
                ),
                "the frequencies fall half as fast: the exponent is d / (D/2), not d / D",
            ),
        ),
    ),
    Exercise(
        number="7.3",
        title="Eq. 21: ALiBi",
        task="slopes is (H,). Return what ALiBi adds to the scores, (H, length, length): minus the "
        "slope of the head times the distance |i - j|.",
        answer=alibi,
        cases=_slopes,
        hints=(
            "Distances first: a column of positions minus a row of positions.",
            "abs() makes them distances in both directions.",
            "slopes[:, None, None] is (H, 1, 1) and broadcasts over the table.",
        ),
        mistakes=(
            Mistake(
                lambda slopes, length: (
                    slopes[:, None, None]
                    * (torch.arange(length)[:, None] - torch.arange(length)).abs()
                ),
                "the sign is wrong: this rewards distance, ALiBi is a penalty for it",
            ),
            Mistake(
                lambda slopes, length: (
                    -slopes[:, None, None] * (torch.arange(length)[:, None] - torch.arange(length))
                ),
                "abs is missing: keys ahead would get a bonus",
            ),
            Mistake(
                lambda slopes, length: (
                    -slopes[:, None, None]
                    * (torch.arange(length)[:, None] - torch.arange(length)).square()
                ),
                "the distance is squared: the penalty of ALiBi is linear",
            ),
            Mistake(
                lambda slopes, length: (
                    -slopes.mean()
                    * (torch.arange(length)[:, None] - torch.arange(length))
                    .abs()
                    .expand(len(slopes), length, length)
                ),
                "one slope for all heads: each head has its own, so that some look far",
            ),
        ),
    ),
)
