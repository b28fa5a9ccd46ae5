import math

import pytest
import torch

from clearformer.compressor import exact

X = torch.linspace(-30, 30, 20_001, dtype=torch.float64)


@pytest.mark.parametrize(
    ("ours", "theirs", "close"),
    [
        (exact.exp, torch.exp, 1e-15), (exact.sin, torch.sin, 1e-15),
        (exact.cos, torch.cos, 1e-15), (exact.tanh, torch.tanh, 1e-15),
        (exact.sigmoid, torch.sigmoid, 1e-15), (exact.erf, torch.erf, 2e-7),
        (exact.gelu, torch.nn.functional.gelu, 2e-6),
    ],
)  # fmt: skip
def test_functions_match_torch(ours, theirs, close):
    torch.testing.assert_close(ours(X), theirs(X), rtol=close, atol=close)


def test_log_matches_torch():
    x = torch.cat((X.abs(), X.exp(), torch.tensor([0.0, math.inf], dtype=torch.float64)))
    torch.testing.assert_close(exact.log(x), x.log(), rtol=1e-14, atol=1e-15)


def test_exp_of_extreme_values():
    found = exact.exp(torch.tensor([-math.inf, -1e9, 0.0, 1e9], dtype=torch.float64))
    assert found.tolist() == [0.0, 0.0, 1.0, math.inf]
    assert exact.exp(torch.tensor([math.nan], dtype=torch.float64)).isnan().all()


def test_power_matches_torch():
    found = exact.power(10_000.0, X / 30)
    torch.testing.assert_close(found, 10_000.0 ** (X / 30), rtol=1e-14, atol=0)


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_product_does_not_depend_on_summation_order():
    """Shuffled columns of a and rows of b are the same sums in another order."""
    a, b = random(3, 700), random(700, 5)
    order = torch.randperm(700, generator=torch.Generator().manual_seed(1))
    found = exact.product(a, b)
    assert torch.equal(found, exact.product(a[:, order], b[order]))
    assert not torch.equal(a @ b, a[:, order] @ b[order])  # what it protects from
    torch.testing.assert_close(found, a @ b, rtol=1e-5, atol=1e-4)


def test_rows_do_not_depend_on_batch():
    a, b = random(40, 96), random(96, 64)
    assert torch.equal(exact.product(a, b)[7:9], exact.product(a[7:9], b))
    assert torch.equal(exact.softmax(a, -1)[3], exact.softmax(a[3], -1))
    assert torch.equal(exact.total(a, [1])[5:6], exact.total(a[5:6], [1]))


def test_products_of_extreme_numbers():
    assert exact.product(torch.zeros(2, 3).double(), random(3, 2)).eq(0).all()
    tiny = torch.full((1, 4), 1e-305, dtype=torch.float64)
    assert exact.product(tiny, random(4, 2)).isfinite().all()


@pytest.mark.parametrize("dims", [[0], [1], [-1], [0, 2], [0, 1, 2]])
@pytest.mark.parametrize("keepdim", [True, False])
def test_total_matches_sum(dims, keepdim):
    x = random(3, 5, 7)
    torch.testing.assert_close(exact.total(x, dims, keepdim), x.sum(dims, keepdim))


def test_attention_of_fully_masked_query_is_zero():
    q, k, v = random(1, 2, 3, 4), random(1, 1, 5, 4), random(1, 1, 5, 4)
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1] = False
    found = exact.attention(q, k, v, mask, 0.5)
    assert found[:, :, 1].eq(0).all()
    expected = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, mask, scale=0.5, enable_gqa=True
    )
    torch.testing.assert_close(found[:, :, 0], expected[:, :, 0], rtol=1e-5, atol=1e-5)
