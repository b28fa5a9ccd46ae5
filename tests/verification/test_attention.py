"""Attention events in traces: operands, factors, mask values and weights."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearformer.verification.attention import find_attention, softmax_axis, states_no_scale
from clearformer.verification.trace import Recorder


def attention_of(function):
    recorder = Recorder(nn.Identity())
    with recorder.recording() as trace:
        function()
    (event,) = find_attention(trace)
    return event


Q, K, V = (torch.randn(2, 3, 5, 4, generator=torch.Generator().manual_seed(i)) for i in range(3))


def explicit():
    return ((Q @ K.transpose(-2, -1)) / 2.0).softmax(-1) @ V


def summed():
    scores = torch.einsum("bhqd,bhkd->bhqk", Q * 0.5, K)
    return torch.einsum("bhqk,bhkd->bhqd", F.softmax(scores, dim=3), V)


def fused():
    return F.scaled_dot_product_attention(Q, K, V)


@pytest.mark.parametrize("function", [explicit, summed, fused])
def test_recognizes_equivalent_implementations(function):
    event = attention_of(function)
    assert event.head_width == 4
    assert event.factor == pytest.approx(0.5)
    wanted = (Q @ K.transpose(-2, -1) / 2).softmax(-1)
    torch.testing.assert_close(event.weights.float(), wanted)
    assert bool(event.seen.all())


def test_factors_before_and_after_the_product_multiply():
    event = attention_of(lambda: ((Q / 2) @ K.transpose(-2, -1) * 0.5).softmax(-1) @ V)
    assert event.factor == pytest.approx(0.25)


def test_learned_scale_is_unknown():
    scale = nn.Parameter(torch.ones(3, 1, 1))
    assert attention_of(lambda: ((Q @ K.mT) * scale).softmax(-1) @ V).factor is None


def test_records_mask_fill_values():
    hidden = torch.ones(5, 5).triu(1).bool()
    event = attention_of(lambda: (Q @ K.mT).masked_fill(hidden, -1e4).softmax(-1) @ V)
    assert event.fills == [-1e4]
    added = torch.zeros(5, 5).masked_fill(hidden, -99.0)
    assert attention_of(lambda: ((Q @ K.mT) + added).softmax(-1) @ V).fills == [-99.0]

    def written():
        scores = Q @ K.mT
        scores[:, :, hidden] = -math.inf
        return scores.softmax(-1) @ V

    event = attention_of(written)
    assert event.fills == [-math.inf]
    assert event.seen.equal(torch.ones(5, 5).tril().bool())


def test_detects_normalized_queries():
    event = attention_of(lambda: (F.normalize(Q, dim=-1) @ K.mT).softmax(-1) @ V)
    assert event.normed


def test_detects_softmax_axis():
    assert softmax_axis(attention_of(lambda: (Q @ K.mT).softmax(dim=2) @ V)) == -2


def test_states_no_scale_reads_source():
    assert states_no_scale("self.scaling = 1.0", "")
    assert states_no_scale("# not scaled, as in T5", "")
    assert not states_no_scale("y = q @ k", "")
    assert not states_no_scale("self.scaling = 1.0\nself.scaling = head_dim**-0.5", "")
