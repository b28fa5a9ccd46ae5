"""Hidden units of every family: each step equals torch's, and the units add up to the output."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from clearformer.explore import feed_forward
from clearformer.explore.arrays import unpack
from clearformer.explore.trace_cache import TraceCache
from clearformer.http_server.errors import Problem

FAMILIES = ["generator", "gpt2", "bert", "classifier", "original", "xl", "sparse", "modern"]
TEXT = "the cat sat on the mat"
GELU_TANH = {"gelu_tanh": lambda x: F.gelu(x, approximate="tanh")}
ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "swiglu": F.silu, "silu": F.silu, **GELU_TANH}


def keep(loaded, id):
    tokens = (TEXT, "the dog sat") if id == "original" else TEXT
    return TraceCache().add(loaded(id), tokens, {})


@pytest.mark.parametrize("family", FAMILIES)
def test_units_equal_torch_and_add_up(loaded, family):
    cached = keep(loaded, family)
    part = next(iter(cached.loaded.model.module.stacks))
    module = cached.loaded.model.module.stacks[part].blocks[1].feed_forward
    activation = ACTIVATIONS[cached.loaded.config.activation]
    stages = cached.layer(1).recorded[part, 1]
    told = feed_forward.units(cached, 1, 2, 100, part)
    assert told["hidden"] == 32
    assert told["gated"] == (family == "modern")
    np.testing.assert_allclose(unpack(told["values"]), stages["mlp_hidden"][0, 2], atol=1e-6)
    np.testing.assert_allclose(unpack(told["pre"]), stages["mlp_pre"][0, 2], atol=1e-6)
    np.testing.assert_allclose(unpack(told["output"]), stages["mlp_out"][0, 2], atol=1e-5)
    total = 0 if told["bias"] is None else unpack(told["bias"]).astype(np.float64)
    order = [each["j"] for each in told["units"]]
    strength = stages["mlp_hidden"][0, 2].abs().tolist()
    assert order == sorted(range(32), key=lambda j: -strength[j])
    shares = 0.0
    for row in told["units"]:
        one = feed_forward.unit(cached, 1, 2, row["j"], part)
        assert {name: one[name] for name in row} == row
        total = total + unpack(one["added"])
        shares += row["share"]
        pre = torch.tensor(row["pre"])
        assert row["activation"] == pytest.approx(float(activation(pre)), abs=1e-6)
        value = 1.0 if row["value"] is None else row["value"]
        assert row["post"] == pytest.approx(row["activation"] * value, abs=1e-5)
        added = row["post"] * module.down.weight[:, row["j"]].detach()
        np.testing.assert_allclose(unpack(one["added"]), added, atol=1e-6)
        assert row["norm"] == pytest.approx(float(added.norm()), abs=1e-5)
        assert unpack(one["products"]).sum() + one["b"] == pytest.approx(row["pre"], abs=1e-5)
        if told["gated"]:
            product = unpack(one["value_products"]).sum() + one["value_b"]
            assert product == pytest.approx(row["value"], abs=1e-5)
    np.testing.assert_allclose(total, unpack(told["output"]), atol=1e-5)
    out = unpack(told["output"]).astype(np.float64)
    if told["bias"] is not None:
        shares += float(unpack(told["bias"]) @ out / (out @ out))
    assert shares == pytest.approx(1, abs=1e-4)


def test_unit_pushes_tokens_by_the_output_matrix(loaded):
    cached = keep(loaded, "gpt2")
    one = feed_forward.unit(cached, 1, 2, 3, None)
    weight = cached.loaded.model.module.head.project.weight.detach()
    logits = weight @ torch.from_numpy(unpack(one["added"]).copy())
    assert [each["id"] for each in one["pushes"]["raised"]] == logits.topk(4).indices.tolist()
    assert one["pushes"]["lowered"][0]["logit"] == pytest.approx(float(logits.min()), abs=1e-6)
    assert feed_forward.unit(keep(loaded, "classifier"), 0, 0, 0, None)["pushes"] is None


def test_wrong_places_are_refused(loaded):
    cached = keep(loaded, "gpt2")
    with pytest.raises(Problem, match="there is no stack 'cross': there is self"):
        feed_forward.units(cached, 0, 0, 3, "cross")
    with pytest.raises(Problem, match="layer is 2, but it must be from 0 to 1"):
        feed_forward.units(cached, 2, 0, 3, None)
    with pytest.raises(Problem, match="j is 32, but it must be from 0 to 31"):
        feed_forward.unit(cached, 0, 0, 32, None)
