"""Changes: what each does to a region."""

import torch

from clearformer.interventions import attention, head, point, residual
from clearformer.interventions.changes import Add, Put, Scale, SetWeights, constant
from clearformer.interventions.instrument import Site, Span

HEADS = Site("self", 0, "head_out")
WEIGHTS = Site("self", 0, "weights")


def test_only_the_region_changes():
    x = torch.randn(2, 3, 4, 5)
    y = Scale(head(0, 1).at(0, 2), 2.0).apply(HEADS, x, Span())
    expected = x.clone()
    expected[:, 1, [0, 2]] *= 2
    assert torch.equal(y, expected)


def test_zero_also_of_infinity():
    x = torch.full((1, 1, 2, 2), -torch.inf)
    masked = Site("self", 0, "scores_masked")
    assert Scale(point("scores_masked", 0), 0.0).apply(masked, x, Span()).abs().max() == 0


def test_positions_count_those_in_a_cache():
    x = torch.randn(1, 2, 6)
    stream = Site("self", 0, "resid_pre")
    change = Add(residual(0).at(7), torch.ones(6))
    y = change.apply(stream, x, Span(6, whole=False))
    assert torch.equal(y[:, 0], x[:, 0])
    assert torch.equal(y[:, 1], x[:, 1] + 1)
    assert torch.equal(change.apply(stream, x, Span(9, whole=False)), x)


def test_a_tensor_without_the_narrowed_axes_fits():
    x = torch.zeros(2, 3, 4, 5)
    value = torch.randn(4, 5)
    y = Put(head(0, 1), value).apply(HEADS, x, Span())
    assert torch.equal(y[0, 1], value)
    assert torch.equal(y[1, 1], value)
    assert y[:, [0, 2]].abs().max() == 0


def test_the_only_weight_of_a_row_keeps_the_rest_zero():
    x = torch.zeros(1, 1, 2, 2)
    x[0, 0, :, 0] = 1
    change = SetWeights(True, [(attention(0, 0)[0, 0], 0.25)])
    assert change.apply(WEIGHTS, x, Span())[0, 0].tolist() == [[0.25, 0.0], [1.0, 0.0]]


def test_a_key_that_is_not_there_yet_is_left_alone():
    x = torch.full((1, 1, 2, 2), 0.5)
    change = SetWeights(True, [(attention(0, 0)[0, 5], 0.25)])
    assert torch.equal(change.apply(WEIGHTS, x, Span(0, whole=False)), x)


def test_inference_tensors_become_constants():
    with torch.inference_mode():
        x = torch.ones(3)
    assert not constant(x).is_inference()
