import pytest
import torch
from torch import nn
from torch.nn import functional

from clearformer.adapters.frozen import FrozenLinear
from clearformer.adapters.low_rank import DoRALinear, LoRALinear

ROWS = {"a": range(2), "b": range(3, 5)}


@pytest.fixture(params=[LoRALinear, DoRALinear])
def kind(request):
    return request.param


def layer_of(kind, rows=ROWS, dropout=0.0, bias=True, held=None):
    torch.manual_seed(0)
    base = nn.Linear(6, 5, bias=bias)
    base.requires_grad_(False)
    if held is not None:
        base = FrozenLinear(base, held)
    layer = kind(base, rows, 2, 1.5, dropout)
    layer.reset(torch.Generator().manual_seed(0))
    return layer


def draw(layer):
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if not name.startswith("base."):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return layer


@pytest.mark.parametrize("bias", [True, False])
def test_a_new_adapter_changes_no_bit(kind, bias):
    layer = layer_of(kind, bias=bias)
    x = torch.randn(2, 3, 6)
    assert torch.equal(layer(x), layer.base(x))


@pytest.mark.parametrize("held", [None, "bfloat16", "int8"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [ROWS, {"whole": range(5)}])
def test_output_is_that_of_the_weight(kind, rows, bias, held):
    layer = draw(layer_of(kind, rows, bias=bias, held=held))
    x = torch.randn(2, 3, 6)
    expected = functional.linear(x, layer.weight, layer.bias)
    assert torch.allclose(layer(x), expected, atol=1e-6)
    assert torch.allclose(layer.merged()(x), expected, atol=1e-6)
    assert (layer(x) - layer.base(x)).abs().max() > 0.1


def test_rows_outside_the_parts_are_unchanged(kind):
    layer = draw(layer_of(kind))
    x = torch.randn(4, 6)
    assert torch.allclose(layer(x)[:, 2], layer.base(x)[:, 2], atol=1e-6)


def test_gradients_are_those_of_the_merged_matrix(kind):
    """The chain rule from W' to A, B and m, by autograd over `weight`."""
    one, other = draw(layer_of(kind)).double(), draw(layer_of(kind)).double()
    other.load_state_dict(one.state_dict())
    x = torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    same = x.detach().clone().requires_grad_()
    weights = torch.randn(2, 3, 5, dtype=torch.float64)
    (one(x) * weights).sum().backward()
    (functional.linear(same, other.weight, other.bias) * weights).sum().backward()
    found = {name: p.grad for name, p in one.named_parameters() if p.requires_grad}
    assert torch.allclose(x.grad, same.grad)
    assert len(found) == (4 if kind is LoRALinear else 6)
    for name, parameter in other.named_parameters():
        if parameter.requires_grad:
            assert torch.allclose(found[name], parameter.grad), name


def test_lora_is_its_formula():
    layer = draw(layer_of(LoRALinear, {"whole": range(5)}))
    part = layer.parts["whole"]
    expected = layer.base.weight + 1.5 * part.B @ part.A
    assert torch.allclose(layer.weight, expected)


def test_dora_gives_every_row_its_length():
    layer = draw(layer_of(DoRALinear, {"whole": range(5)}))
    part, m = layer.parts["whole"], layer.magnitude["whole"]
    moved = layer.base.weight + 1.5 * part.B @ part.A
    expected = m[:, None] * moved / moved.norm(dim=1, keepdim=True)
    assert torch.allclose(layer.weight, expected, atol=1e-6)


def test_a_row_of_zeros_is_finite():
    base = nn.Linear(4, 3)
    nn.init.zeros_(base.weight)
    layer = DoRALinear(base, {"whole": range(3)}, 2, 1.0, 0.0)
    layer.reset(torch.Generator().manual_seed(0))
    y = layer(torch.randn(2, 4))
    y.sum().backward()
    assert y.isfinite().all()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


def test_dropout_is_on_the_input_of_a(kind):
    layer = draw(layer_of(kind, dropout=0.5)).train()
    x = torch.randn(64, 6)
    assert not torch.allclose(layer(x), functional.linear(x, layer.weight, layer.bias))
    layer.eval()
    assert torch.allclose(layer(x), functional.linear(x, layer.weight, layer.bias), atol=1e-6)


def test_autocast_computes_in_bfloat16(kind):
    layer = draw(layer_of(kind))
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(torch.randn(4, 6))
    y.float().sum().backward()
    assert y.dtype == torch.bfloat16


def test_only_narrow_tensors_are_kept_for_the_backward_pass():
    """x, x A^T and the narrow matrices; no second (O, I) matrix."""
    base = nn.Linear(64, 64)
    base.requires_grad_(False)
    layer, saved = LoRALinear(base, {"whole": range(64)}, 2, 1.0, 0.0), []
    x = torch.randn(8, 64, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        layer(x)
    storages = {t.untyped_storage().data_ptr(): t for t in saved}
    storages.pop(base.weight.untyped_storage().data_ptr())
    kept = sum(t.untyped_storage().nbytes() for t in storages.values())
    assert kept <= 4 * (8 * 64 + 8 * 2 + 4 * 64)
