"""Label smoothing applies to every head of a model."""

import pytest

from clearformer.builder import build
from clearformer.core.heads import Head
from clearformer.training.label_smoothing import set_smoothing


@pytest.mark.parametrize("family", ["gpt2", "bert", "classifier"])
def test_label_smoothing_applies_to_every_head_in_training_only(family, small):
    model = build(small(family))
    set_smoothing(model, 0.1)
    heads = [each for each in model.modules() if isinstance(each, Head)]
    assert heads
    assert {each.label_smoothing for each in heads} == {0.1}
    model.eval()
    assert {each.label_smoothing for each in heads} == {0.0}
