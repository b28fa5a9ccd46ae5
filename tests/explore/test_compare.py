"""A against A is zero everywhere; two checkpoints differ."""

import numpy as np
import pytest

from clearformer.explore.arrays import unpack
from clearformer.explore.compare import compare, look
from clearformer.explore.errors import Problem
from clearformer.explore.limits import Limits


def side(opened, id, checkpoint=None, target=None):
    return look(opened(id, checkpoint), "the cat sat", target, Limits())


@pytest.mark.parametrize("id", ["gpt2", "classifier", "bert"])
def test_a_model_does_not_differ_from_itself(opened, id):
    told = compare(side(opened, id), side(opened, id))
    assert told["max_abs"] == told["max_logit"] == 0
    assert not unpack(told["kl"]).any()
    assert not unpack(told["diff_thumbs"]["self"]).any()


def test_two_checkpoints_differ(opened):
    a, b = side(opened, "gpt2", "step-10"), side(opened, "gpt2", "step-20")
    told = compare(a, b)
    assert (unpack(told["kl"]) > 0).all()
    difference = (b.maps["self"] - a.maps["self"]).numpy()
    low, high = told["diff_thumbs"]["self"]["scale"]
    np.testing.assert_allclose(
        unpack(told["diff_thumbs"]["self"]), difference, atol=(high - low) / 255
    )
    assert told["max_abs"] == pytest.approx(abs(difference).max())


def test_translators_are_told_one_target(opened):
    a = side(opened, "original")
    b = side(opened, "original", target=a.target)
    told = compare(a, b)
    assert told["parts"] == ["encoder", "decoder", "cross"]
    assert len(told["output_tokens"]) == len(unpack(told["kl"]))
    assert told["max_logit"] == 0


def test_what_cannot_stand_side_by_side_is_refused(opened):
    with pytest.raises(Problem, match="read this text as different tokens"):
        compare(side(opened, "gpt2"), side(opened, "modern"))
    with pytest.raises(Problem, match="another number of layers or heads"):
        compare(side(opened, "generator"), side(opened, "twelve"))
