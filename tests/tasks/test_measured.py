"""Standard errors, and evaluation mode."""

import pytest
import torch

from clearformer.tasks.measured import evaluating, shares, standard_error


def test_a_standard_error_needs_two_scores():
    assert standard_error([1.0]) is None
    assert standard_error([1.0, float("nan")]) is None
    assert standard_error([1.0, 3.0]) == pytest.approx(1.0)


def test_the_mean_of_shares_is_the_sum_over_the_total():
    found = shares([1.0, 2.0, 3.0], 12.0)
    assert sum(found) / 3 == pytest.approx(0.5)


def test_evaluating_comes_back_after_an_error():
    model = torch.nn.Linear(2, 2).train()
    modes = []

    def fail():
        modes.append(model.training)
        raise RuntimeError

    with pytest.raises(RuntimeError), evaluating(model):
        fail()
    assert modes == [False]
    assert model.training
    assert torch.is_grad_enabled()
