"""Label smoothing reaches every head of a model."""

import pytest

from clearformer.builder import build
from clearformer.core.heads import Head
from clearformer.training.label_smoothing import set_smoothing


@pytest.mark.parametrize("family", ["gpt2", "bert", "classifier"])
def test_every_head_is_smoothed_in_training_alone(family, small):
    model = build(small(family))
    set_smoothing(model, 0.1)
    heads = [each for each in model.modules() if isinstance(each, Head)]
    assert heads
    assert {each.label_smoothing for each in heads} == {0.1}
    model.eval()
    assert {each.label_smoothing for each in heads} == {0.0}
