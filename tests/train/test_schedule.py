"""Learning rates over a run, at the places where each shape can be told by hand."""

import math

import pytest

from clearformer.config import Constant, Cosine, InverseSqrt, Linear, StableThenDecay
from clearformer.train.schedule import factor


@pytest.mark.parametrize(
    ("schedule", "progress", "expected"),
    [
        (Constant(), 0.9, 1.0),
        (Linear(), 0.0, 1.0),
        (Linear(), 0.25, 0.75),
        (Linear(final=0.1), 1.0, 0.1),
        (Linear(), 2.0, 0.0),
        (Cosine(), 0.0, 1.0),
        (Cosine(), 0.5, 0.5),
        (Cosine(final=0.2), 1.0, 0.2),
        (Cosine(), 0.25, (1 + math.cos(math.pi / 4)) / 2),
        (StableThenDecay(decay=0.4), 0.6, 1.0),
        (StableThenDecay(decay=0.4), 0.8, 0.5),
        (StableThenDecay(decay=0.4), 1.0, 0.0),
    ],
)
def test_shapes(schedule, progress, expected):
    assert factor(schedule, 10_000, progress) == pytest.approx(expected)


@pytest.mark.parametrize("schedule", [Constant(warmup=4), Linear(warmup=4), Cosine(warmup=4)])
def test_warm_up_is_a_line(schedule):
    assert [factor(schedule, step, 0.0) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_the_originals_schedule():
    schedule = InverseSqrt(warmup=100)
    assert factor(schedule, 49, 0.0) == pytest.approx(0.5)
    assert factor(schedule, 99, 0.0) == pytest.approx(1.0)
    assert factor(schedule, 399, 0.5) == pytest.approx(0.5)
