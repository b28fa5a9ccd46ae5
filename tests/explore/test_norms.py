"""The arithmetic of every norm of every family equals torch's own."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearformer.explore import norms
from clearformer.explore.arrays import unpack
from clearformer.explore.trace_cache import TraceCache
from clearformer.http_server.errors import Problem

FAMILIES = ["generator", "gpt2", "bert", "classifier", "original", "xl", "sparse", "modern"]
TEXT = "the cat sat on the mat"


def keep(loaded, id):
    tokens = (TEXT, "the dog sat") if id == "original" else TEXT
    return TraceCache().add(loaded(id), tokens, {})


def direct(module, x):
    """The norm by torch's own function, in one call."""
    if isinstance(module, nn.RMSNorm):
        return F.rms_norm(x, module.normalized_shape, module.weight, module.eps)
    return F.layer_norm(x, module.normalized_shape, module.weight, module.bias, module.eps)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_norm_equals_torch(loaded, family):
    cached = keep(loaded, family)
    every = norms.norms(cached.loaded.model.module)
    assert every
    for (part, layer, which), module in every.items():
        told = norms.norm(cached, max(layer, 0), -1, which, part)
        x = torch.from_numpy(unpack(told["x"]).copy())
        with torch.no_grad():
            wanted = direct(module, x)
        np.testing.assert_allclose(unpack(told["output"]), wanted, atol=1e-5)
        steps = unpack(told["normalized"]) * unpack(told["weight"])
        steps = steps + (unpack(told["bias"]) if told["bias"] else 0)
        np.testing.assert_allclose(steps, unpack(told["output"]), atol=1e-5)
        if told["kind"] == "layer":
            assert told["mean"] == pytest.approx(float(x.double().mean()), abs=1e-9)
            variance = float(x.double().var(unbiased=False))
        else:
            assert told["mean"] == 0
            variance = float(x.double().square().mean())
        assert told["variance"] == pytest.approx(variance, rel=1e-9)
        assert told["root"] == pytest.approx((variance + told["epsilon"]) ** 0.5, rel=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_norms_read_and_write_the_recorded_stream(loaded, family):
    """Pre-norm reads the stream and feeds attention; post-norm reads the sum and writes it."""
    cached = keep(loaded, family)
    part = cached.overview.parts[0]
    stages = cached.layer(1).recorded[part, 1]
    told = norms.norm(cached, 1, 2, "attention", part)
    x, y = (torch.from_numpy(unpack(told[name]).copy()) for name in ("x", "output"))
    if cached.loaded.config.residual == "pre":
        torch.testing.assert_close(x, stages["resid_pre"][0, 2], atol=1e-6, rtol=0)
        torch.testing.assert_close(y, stages["attn_in"][0, 2], atol=1e-6, rtol=0)
    else:
        total = stages["resid_pre"][0, 2] + stages["attn_out"][0, 2]
        torch.testing.assert_close(x, total, atol=1e-6, rtol=0)
        torch.testing.assert_close(y, stages["resid_mid"][0, 2], atol=1e-6, rtol=0)


def test_own_norm_shows_its_input_alone():
    class Doubled(nn.Module):
        def forward(self, x):
            return 2 * x

    assert norms.norm_kind(Doubled()) == "other"
    assert norms.norm_kind(nn.Identity()) is None
    assert list(norms.arithmetic(Doubled(), torch.ones(3))) == ["x"]


def test_missing_norms_are_refused(loaded):
    cached = keep(loaded, "generator")  # post-norm: no final norm
    with pytest.raises(Problem, match="no final norm: it has attention, mlp"):
        norms.norm(cached, 0, 0, "final", None)
    with pytest.raises(Problem, match="layer is 5, but it must be from 0 to 1"):
        norms.norm(cached, 5, 0, "mlp", None)
