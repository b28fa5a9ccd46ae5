"""Stages: attention stage by stage is the formula, and norms divide by the recorded scale."""

import pytest
import torch
from torch import nn

from clearformer.core.kernels import explicit, weights
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal
from clearformer.extensions.layers import RMSNorm
from clearformer.interventions.stages import NORM_SCALES, attention_stages


def test_equals_the_explicit_kernel():
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    mask = Mask(Causal(), torch.tensor([[False, True, True, True, True], [True] * 5]))
    bias = torch.randn(4, 5, 5)
    found = attention_stages(q, k, v, mask, bias)
    assert torch.equal(found["weights"], weights(q, k, mask, bias))
    assert torch.equal(found["head_out"], explicit(q, k, v, mask, bias, 0.0))
    torch.manual_seed(3)
    dropped = attention_stages(q, k, v, mask, bias, dropout=0.5)["head_out"]
    torch.manual_seed(3)
    assert torch.equal(dropped, explicit(q, k, v, mask, bias, 0.5))


def test_a_visit_changes_what_follows():
    q, k, v = (torch.randn(1, 1, 3, 4) for _ in range(3))

    def visit(stage, x):
        return torch.eye(3)[None, None] if stage == "weights" else x

    assert torch.equal(attention_stages(q, k, v, Mask(), None, visit)["head_out"], v)


@pytest.mark.parametrize("norm", [nn.LayerNorm(6), nn.RMSNorm(6), RMSNorm(6, eps=1e-6)])
def test_scales(norm):
    nn.init.normal_(norm.weight)
    x = torch.randn(2, 3, 6)
    centred = x - x.mean(-1, keepdim=True) if isinstance(norm, nn.LayerNorm) else x
    torch.testing.assert_close(centred / NORM_SCALES[type(norm)](norm, x) * norm.weight, norm(x))
