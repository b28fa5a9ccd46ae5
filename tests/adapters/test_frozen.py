import pytest
import torch
from torch import nn
from torch.nn import functional

from clearformer.adapters.frozen import FrozenLinear, hold


@pytest.fixture(params=["bfloat16", "int8"])
def held(request):
    return request.param


@pytest.fixture
def linear():
    torch.manual_seed(0)
    return nn.Linear(6, 5)


def test_product_and_gradient_are_those_of_the_held_matrix(linear, held):
    frozen = FrozenLinear(linear, held)
    x, other = (torch.randn(2, 3, 6).requires_grad_() for _ in range(2))
    other.data.copy_(x.data)
    y = frozen(x)
    expected = functional.linear(other, frozen.weight, linear.bias)
    assert torch.equal(y, expected)
    weights = torch.randn_like(y)
    (y * weights).sum().backward()
    (expected * weights).sum().backward()
    assert torch.allclose(x.grad, other.grad, atol=1e-6)


def test_held_matrix_is_near_the_original_and_smaller(linear, held):
    frozen = FrozenLinear(linear, held)
    assert (frozen.weight - linear.weight).abs().max() < 0.01
    assert frozen.numbers.nbytes * {"bfloat16": 2, "int8": 4}[held] == linear.weight.nbytes
    assert not [name for name in frozen.state_dict() if name != "bias"]
    assert torch.equal(frozen.merged().weight, frozen.weight)


def test_the_backward_pass_keeps_no_float32_matrix(linear, held):
    frozen, saved = FrozenLinear(linear, held), []
    x = torch.randn(3, 6, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        frozen(x)
    assert all(each.dtype != torch.float32 or each.dim() == 1 for each in saved)


def test_autocast_computes_in_bfloat16(linear, held):
    frozen = FrozenLinear(linear, held)
    x = torch.randn(3, 6, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = frozen(x)
    y.float().sum().backward()
    assert y.dtype == torch.bfloat16
    assert x.grad.dtype == torch.float32


def test_float32_is_the_layer_itself(linear):
    assert hold(linear, "float32") is linear
