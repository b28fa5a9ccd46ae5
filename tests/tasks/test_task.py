"""Evaluation options, and what a task knows about a model without data."""

import pytest

from clearformer.config import RunConfig
from clearformer.families import gpt2
from clearformer.families.recipes import recipe
from clearformer.tasks.registry import task_of
from clearformer.tasks.task import EvaluationOptions, rows_at_a_time


@pytest.mark.parametrize(
    ("options", "part", "described"),
    [
        ({}, 1, "held back by the run, of x"),
        ({"part": "train"}, 0, "training part of x"),
        ({"part": "test"}, None, "x"),
        ({"data": "a.txt"}, None, "x"),
    ],
)
def test_describe_names_evaluated_part(options, part, described):
    found = EvaluationOptions(**options)
    assert found.own_part == part
    assert found.describe("x") == described


def test_unpadded_task_has_fixed_length():
    model = gpt2()
    data, train = recipe(model)
    config = RunConfig(model=model, data=data, train=train)
    task = task_of(model)
    assert not task.padded
    assert task.rows(config, (3, 8)) == train.batch_size
    assert task.length((3, 8)) == model.length
    assert task.pair_lengths(config, None) is task.typical_length(config, None) is None
    assert rows_at_a_time(config, 4) == 4
    assert rows_at_a_time(config, 1000) == train.batch_size
