"""Errata of the source documents that are not tested beside their code."""

import inspect

import torch

from clearformer.core import basic
from clearformer.core.attention import Attention
from clearformer.core.embedding import Embedding
from clearformer.core.kernels import weights
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal, Full, Local, Pattern, Strided
from clearformer.core.positions import Learned


def test_erratum_2_loop_form_has_a_loop_over_heads():
    assert "for head in range(heads)" in inspect.getsource(basic.multi_head_loop)
    assert "for " not in inspect.getsource(Attention.forward)


def test_erratum_5_positions_are_on_device_of_tokens():
    # A device without memory stands in for one that is not the CPU: mixing the two raises.
    with torch.device("meta"):
        embedding = Embedding(torch.nn.Embedding(10, 4), 8, position=Learned())
        tokens = torch.zeros(2, 5, dtype=torch.long)
    assert embedding(tokens).device.type == "meta"


def test_erratum_6_mask_is_applied():
    attention = Attention(8, 2)
    x = torch.randn(1, 4, 8)
    seen, masked = attention(x, Mask(Full())), attention(x, Mask(Causal()))
    assert not torch.allclose(seen[:, 0], masked[:, 0])
    torch.testing.assert_close(seen[:, -1], masked[:, -1])


def test_erratum_8_equal_scores_give_uniform_weights():
    q, k = torch.zeros(1, 1, 1, 4), torch.randn(1, 1, 5, 4)
    torch.testing.assert_close(weights(q, k, Mask(), None), torch.full((1, 1, 1, 5), 0.2))


def test_erratum_11_both_readings_of_strided_are_equal():
    stride, length = 8, 64

    def merged(local: Pattern) -> torch.Tensor:
        return (Causal() & (local | Strided(stride))).table(length, length)

    assert merged(Local(stride)).equal(merged(Local(stride + 1)))
    assert merged(Local(stride)).sum() == 708


def test_erratum_14_scaled_products_have_unit_spread():
    for width in (16, 64, 256):
        q, k = torch.randn(2, 20_000, width, dtype=torch.float64)
        products = (q * k).sum(dim=-1) / width**0.5
        assert abs(float(products.mean())) < 0.05
        assert abs(float(products.std()) - 1) < 0.05


def test_erratum_16_only_orthogonal_maps_preserve_the_gradient():
    def ratio(layers):
        x = torch.randn(4, 32, requires_grad=True)
        y = torch.nn.Sequential(*layers)(x)
        probe = torch.randn_like(y)
        (gradient,) = torch.autograd.grad((y * probe).sum(), x)
        return float(gradient.norm() / probe.norm())

    drawn = [torch.nn.Linear(32, 32) for _ in range(24)]
    turned = [torch.nn.utils.parametrizations.orthogonal(torch.nn.Linear(32, 32)) for _ in drawn]
    assert ratio(drawn) < 1e-3
    assert abs(ratio(turned) - 1) < 1e-3
