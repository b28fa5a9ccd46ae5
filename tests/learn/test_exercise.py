"""Exercise metadata and test data."""

import torch

from clearformer.learn.catalogue import find
from clearformer.learn.exercise import draw


def test_exercise_has_signature_and_solution():
    exercise = find("3.1")
    assert exercise.name == "scores"
    assert exercise.signature == "def scores(x, to_queries, to_keys):"
    assert "queries @ keys.transpose(-2, -1)" in exercise.solution


def test_draw_is_deterministic():
    torch.manual_seed(5)
    first = draw(2, 3)
    torch.manual_seed(6)
    assert first.equal(draw(2, 3))
    assert not first.equal(draw(2, 3, seed=1))
