"""Learning rate schedules, at points that can be computed by hand."""

import itertools
import math

import pytest

from clearformer.config import Constant, Cosine, InverseSqrt, Linear, StableThenDecay
from clearformer.training.schedule import Warmup, by_clock, by_steps, factor, from_start

OVER = Warmup(1.0)
SCHEDULES = [Constant, Linear, Cosine, StableThenDecay, InverseSqrt]


def steps_curve(schedule, total):
    """The factors of a run of so many steps."""
    return [
        factor(schedule, step, step / total, by_steps(schedule, step, total))
        for step in range(total)
    ]


def clock_curve(schedule, seconds, budget):
    """The factors of a run with a budget in seconds whose steps begin at these seconds."""
    found, ended = [], None
    for step, now in enumerate(seconds):
        warmup = ended or by_clock(schedule, step, now / budget)
        if warmup.factor >= 1:
            ended = ended or warmup
        found.append(factor(schedule, step, now / budget, warmup))
    return found


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
def test_schedule_values_at_known_points(schedule, progress, expected):
    assert factor(schedule, 10_000, progress, OVER) == pytest.approx(expected)
    assert from_start(schedule, 10_000, progress) == pytest.approx(expected)


@pytest.mark.parametrize("kind", SCHEDULES)
def test_warmup_is_linear(kind):
    assert steps_curve(kind(warmup=4), 100)[:4] == [0.25, 0.5, 0.75, 1.0]


def test_inverse_sqrt_schedule():
    rates = steps_curve(InverseSqrt(warmup=100), 1000)
    assert rates[49] == pytest.approx(0.5)
    assert rates[99] == pytest.approx(1.0)
    assert rates[399] == pytest.approx(0.5)


def test_decay_covers_steps_after_warmup():
    rates = steps_curve(Linear(warmup=10), 110)
    assert rates[9] == rates[10] == 1.0
    assert rates[60] == pytest.approx(0.5)
    assert rates[109] == pytest.approx(0.01)


def test_short_run_limits_warmup_to_a_tenth():
    rates = steps_curve(Cosine(warmup=50), 56)
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert sum(rates) / 56 > 0.45


def test_short_timed_run_limits_warmup_to_a_tenth():
    seconds = [each * 2.0 for each in range(56)]  # 112 seconds
    rates = clock_curve(Cosine(warmup=50), seconds, 112)
    assert rates[0] == 1 / 50
    assert rates[3] == pytest.approx(6 / 11.2)
    assert rates[5] < 1.0
    assert rates[6] == 1.0


@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("warmup", [0, 1, 7, 100, 4000])
def test_every_schedule_reaches_the_base_rate_and_never_exceeds_it(kind, warmup):
    schedule = kind(warmup=warmup)
    for total in (1, 2, 9, 56, 1000):
        curves = [steps_curve(schedule, total)]
        for pause in (0.0, 0.3):  # a pause in the middle of the run
            seconds = [each / total + (pause if each > total / 2 else 0) for each in range(total)]
            curves.append(clock_curve(schedule, [s for s in seconds if s < 1], 1.0))
        for rates in curves:
            slow = len(rates) == 1 and warmup > 1  # by the clock, one step is its own warm-up
            assert max(rates) == 1.0 or slow, (schedule, total, max(rates))
            peak = rates.index(max(rates))
            assert peak <= 0.1 * total + 1, (schedule, total, peak)
            for early, late in itertools.pairwise(rates[: peak + 1]):
                assert early <= late
            for early, late in itertools.pairwise(rates[peak:]):
                assert early >= late
            assert min(rates) >= 0


@pytest.mark.parametrize("kind", [Linear, Cosine, StableThenDecay])
@pytest.mark.parametrize("warmup", [0, 20])
def test_decay_ends_at_final_rate(kind, warmup):
    schedule = kind(warmup=warmup, final=0.25)
    assert factor(schedule, 300, 1.0, by_steps(schedule, 300, 300)) == 0.25


def test_decay_starts_after_warmup():
    assert max(steps_curve(StableThenDecay(warmup=10, decay=1.0), 100)) == 1.0


def test_runs_of_earlier_versions_keep_their_rates():
    # To the last bit: what 1.0 computed for these, written down.
    assert from_start(Cosine(warmup=50), 49, 49 / 56) == 0.03806023374435663
    assert from_start(Linear(warmup=50), 24, 24 / 56) == 0.5 * (1 - 24 / 56)
    assert from_start(Linear(warmup=50, final=0.1), 9, 0.5) == 0.2 * (0.1 + 0.9 * 0.5)
    assert from_start(StableThenDecay(warmup=20, decay=0.4), 9, 0.8) == 0.5 * ((1 - 0.8) / 0.4)
    assert from_start(Constant(warmup=4), 1, 0.9) == 0.5
    assert from_start(InverseSqrt(warmup=100), 399, 0.9) == 0.5
    assert from_start(InverseSqrt(warmup=100), 9, 0.9) == 0.1
