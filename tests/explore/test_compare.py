"""Comparing models: a model equals itself, two checkpoints differ."""

import numpy as np
import pytest

from clearformer.explore.arrays import unpack
from clearformer.explore.compare import compare, trace_side
from clearformer.explore.limits import Limits
from clearformer.http_server.errors import Problem


def side(loaded, id, checkpoint=None, target=None):
    return trace_side(loaded(id, checkpoint), "the cat sat", target, Limits())


@pytest.mark.parametrize("id", ["gpt2", "classifier", "bert"])
def test_model_equals_itself(loaded, id):
    told = compare(side(loaded, id), side(loaded, id))
    assert told["max_abs"] == told["max_logit"] == 0
    assert not unpack(told["kl"]).any()
    assert not unpack(told["diff_thumbs"]["self"]).any()


def test_two_checkpoints_differ(loaded):
    a, b = side(loaded, "gpt2", "step-10"), side(loaded, "gpt2", "step-20")
    told = compare(a, b)
    assert (unpack(told["kl"]) > 0).all()
    difference = (b.maps["self"] - a.maps["self"]).numpy()
    low, high = told["diff_thumbs"]["self"]["scale"]
    np.testing.assert_allclose(
        unpack(told["diff_thumbs"]["self"]), difference, atol=(high - low) / 255
    )
    assert told["max_abs"] == pytest.approx(abs(difference).max())


def test_translators_share_one_target(loaded):
    a = side(loaded, "original")
    b = side(loaded, "original", target=a.target)
    told = compare(a, b)
    assert told["parts"] == ["encoder", "decoder", "cross"]
    assert len(told["output_tokens"]) == len(unpack(told["kl"]))
    assert told["max_logit"] == 0


def test_rejects_incomparable_models(loaded):
    with pytest.raises(Problem, match="split this text into different tokens"):
        compare(side(loaded, "gpt2"), side(loaded, "modern"))
    with pytest.raises(Problem, match="different numbers of layers or heads"):
        compare(side(loaded, "generator"), side(loaded, "twelve"))
