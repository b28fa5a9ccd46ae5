"""Evaluation mode, and the way back."""

import pytest
from torch import nn

from clearformer.inference.modes import evaluating


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_comes_back_even_after_an_error(training):
    model = nn.Dropout().train(training)
    with evaluating(model):
        assert not model.training
    assert model.training == training
    with pytest.raises(KeyError), evaluating(model):
        raise KeyError
    assert model.training == training
