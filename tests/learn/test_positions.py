"""Chapter 7: wrong answers as people write them, and the solutions beside core."""

import math

import pytest
import torch

from clearformer.core.positions import Rotary, Sinusoidal
from clearformer.extensions.positions import ALiBi, alibi_slopes
from clearformer.learn import positions as solutions
from clearformer.learn.catalogue import find
from clearformer.learn.judge import judge


def table(length, width, number):
    """A table from a function of position and number, one number at a time."""
    return torch.tensor([[number(i, n) for n in range(width)] for i in range(length)])


def halves(length, width):
    half = width // 2
    return table(
        length,
        width,
        lambda i, n: (math.sin if n < half else math.cos)(i / 10000 ** (2 * (n % half) / width)),
    )


def half_exponent(length, width):
    return table(
        length,
        width,
        lambda i, n: (math.cos if n % 2 else math.sin)(i / 10000 ** ((n // 2) / width)),
    )


def cosines_first(length, width):
    return table(
        length,
        width,
        lambda i, n: (math.sin if n % 2 else math.cos)(i / 10000 ** (2 * (n // 2) / width)),
    )


def own_frequencies(length, width):
    return table(
        length,
        width,
        lambda i, n: (math.cos if n % 2 else math.sin)(i / 10000 ** (n / width)),
    )


def from_one(length, width):
    return solutions.sinusoids(length + 1, width)[1:]


def pairs(x, angles):
    a, b = x.split(x.shape[-1] // 2, dim=-1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def speeds(x):
    half = x.shape[-1] // 2
    return torch.tensor([1 / 10000 ** (d / half) for d in range(half)])


def neighbours(x, positions):
    return Rotary(pairs="neighbours").rotate(x[:, None], positions)[:, 0]


def other_way(x, positions):
    return pairs(x, -torch.outer(positions.float(), speeds(x)))


def counted_from_zero(x, positions):
    return pairs(x, torch.outer(torch.arange(x.shape[1]).float(), speeds(x)))


def one_speed(x, positions):
    return pairs(x, positions[:, None].float().expand(-1, x.shape[-1] // 2))


def slow_fall(x, positions):
    return pairs(x, torch.outer(positions.float(), speeds(x).sqrt()))


def distances(length):
    return torch.tensor([[float(i - j) for j in range(length)] for i in range(length)])


def bonus(slopes, length):
    return slopes.view(-1, 1, 1) * distances(length).abs()


def signed(slopes, length):
    return -slopes.view(-1, 1, 1) * distances(length)


def squared(slopes, length):
    return -slopes.view(-1, 1, 1) * distances(length) ** 2


def shared_slope(slopes, length):
    return (-slopes.mean() * distances(length).abs()).repeat(len(slopes), 1, 1)


@pytest.mark.parametrize(
    ("number", "answer", "said"),
    [
        ("7.1", halves, "all sines, then all cosines"),
        ("7.1", half_exponent, "the exponent is 2c / width"),
        ("7.1", cosines_first, "have changed places"),
        ("7.1", own_frequencies, "a frequency of its own"),
        ("7.1", from_one, "the first position is 1"),
        ("7.2", neighbours, "neighbours 2d and 2d + 1"),
        ("7.2", other_way, "goes the other way"),
        ("7.2", counted_from_zero, "the positions are ignored"),
        ("7.2", one_speed, "every pair turns equally fast"),
        ("7.2", slow_fall, "the exponent is d / (D/2)"),
        ("7.3", bonus, "the sign is wrong"),
        ("7.3", signed, "abs is missing"),
        ("7.3", squared, "squared"),
        ("7.3", shared_slope, "one slope for all heads"),
    ],
)
def test_wrong_answer_gets_its_own_message(number, answer, said):
    verdict = judge(find(number), answer)
    assert not verdict
    assert said in verdict.message


def test_solutions_are_those_of_core():
    torch.testing.assert_close(
        solutions.sinusoids(9, 8), Sinusoidal().added(torch.arange(9), 8).float()
    )
    x, at = torch.randn(2, 5, 8), torch.arange(3, 8)
    torch.testing.assert_close(solutions.rotate(x, at), Rotary().rotate(x[:, None], at)[:, 0])
    q = torch.randn(1, 4, 6, 8)
    slopes = torch.tensor(alibi_slopes(4))
    torch.testing.assert_close(solutions.alibi(slopes, 6), ALiBi().bias(4, 6, 6, q))
