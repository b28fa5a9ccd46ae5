"""Context managers for evaluation and inference mode restore the previous mode."""

import pytest
import torch
from torch import nn

from clearformer.inference.modes import evaluating, inference_mode


@pytest.mark.parametrize("training", [True, False])
def test_evaluating_restores_mode_after_error(training):
    model = nn.Dropout().train(training)
    with evaluating(model):
        assert not model.training
    assert model.training == training
    with pytest.raises(KeyError), evaluating(model):
        raise KeyError
    assert model.training == training


def test_inference_mode_restores_mode_after_error():
    model = torch.nn.Linear(2, 2).train()
    modes = []

    def fail():
        modes.append(model.training)
        raise RuntimeError

    with pytest.raises(RuntimeError), inference_mode(model):
        fail()
    assert modes == [False]
    assert model.training
    assert torch.is_grad_enabled()
