"""Progress and learning rate of a budget in steps, epochs or minutes."""

import math

import pytest

from clearformer.config import InverseSqrt, Linear, TrainConfig
from clearformer.training.budget import Budget


def budget(**train):
    return Budget(TrainConfig(learning_rate=1.0, batch_size=4, **train), steps_per_epoch=10)


def test_progress_by_steps_or_time():
    assert budget(steps=20).progress(5, 99.0) == 0.25
    assert budget(epochs=2.5).total_steps == 25
    assert budget(epochs=0.01).total_steps == 1
    assert budget(minutes=2).progress(5, 30.0) == 0.25


def test_warmup_end_is_recorded_once():
    one = budget(steps=40, schedule=Linear(warmup=3))
    assert one.lr_factor(0, 0.5, None) == (pytest.approx(1 / 3), None)
    factor, warmed = one.lr_factor(2, 1.5, None)
    assert (factor, warmed) == (pytest.approx(1.0, abs=0.1), {"step": 3, "seconds": 1.5})
    assert one.lr_factor(9, 4.0, warmed)[1] == warmed


def test_other_budget_does_not_move_warmup_end():
    warmed = {"step": 4, "seconds": 2.0}
    longer = budget(steps=400, schedule=InverseSqrt(warmup=50))
    assert longer.lr_factor(10, 5.0, warmed) == (math.sqrt(4 / 11), warmed)


def test_run_of_earlier_version_keeps_its_schedule():
    old = budget(steps=12, schedule=Linear(warmup=3), decay_start="from_start")
    assert old.lr_factor(0, 0.0, None) == (pytest.approx(1 / 3), None)
