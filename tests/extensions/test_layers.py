"""Further activations and RMSNorm."""

import math

import pytest
import torch

from clearformer.extensions.layers import RMSNorm, gelu_tanh, squared_relu

ACTIVATIONS = {
    "gelu_tanh": (
        gelu_tanh,
        lambda x: x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    ),
    "squared_relu": (squared_relu, lambda x: max(0.0, x) ** 2),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_match_formulas(name):
    activation, formula = ACTIVATIONS[name]
    x = torch.linspace(-4, 4, 33, dtype=torch.float64)
    expected = torch.tensor([formula(each) for each in x.tolist()], dtype=torch.float64)
    torch.testing.assert_close(activation(x), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rms_norm_matches_formula_in_input_dtype(dtype):
    norm, x = RMSNorm(6, eps=1e-5), torch.randn(3, 6, dtype=dtype)
    torch.nn.init.normal_(norm.weight)
    y = norm(x)
    assert y.dtype == dtype
    exact = x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight
    torch.testing.assert_close(y.double(), exact, rtol=torch.finfo(dtype).eps * 8, atol=1e-6)
