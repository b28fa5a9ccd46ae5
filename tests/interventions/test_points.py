"""Points: what they select in a trace and in a model."""

import operator

import numpy as np
import pytest
import torch

from clearformer.builder import build
from clearformer.explore.trace import trace
from clearformer.interventions import attention, head, mlp, neuron, norm, point, residual
from clearformer.interventions.instrument import Site
from clearformer.interventions.points import AXES

TOKENS = torch.tensor([5, 17, 3, 9])


class Empty:
    """Has what a trace has, and no values."""

    get = None


def test_value_of_a_point_in_a_trace(gpt2):
    found = trace(gpt2, TOKENS)
    assert torch.equal(head(1, 2).of(found), found.get("head_out", 1, 2))
    assert torch.equal(residual(1).at(-1).of(found), found.get("resid_pre", 1)[-1])
    assert torch.equal(attention(1, 2)[3, 0].of(found), found.weights(1, 2)[3, 0])
    assert torch.equal(neuron(0, 5).of(found), found.get("mlp_hidden", 0)[:, 5])
    assert torch.equal(mlp(2).at(0, 2).of(found), found.get("mlp_out", 2)[[0, 2]])
    with pytest.raises(ValueError, match="is of every layer: choose one"):
        mlp().of(found)


def test_sites_of_a_point(gpt2, small):
    assert mlp().sites(gpt2) == [Site("self", layer, "mlp_out") for layer in range(3)]
    assert norm(which="final").sites(gpt2) == [Site("self", 2, "final_norm_scale")]
    assert len(norm().sites(gpt2)) == 7
    translator = build(small("original"))
    assert head(0, 0).sites(translator) == [Site("encoder", 0, "head_out")]
    assert head(0, 0, "cross").sites(translator) == [Site("cross", 0, "head_out")]
    with pytest.raises(ValueError, match="cross-attention has no mlp_out: choose part='decoder'"):
        mlp(0, "cross").sites(translator)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: residual(0).at(), "at\\(\\) needs a position"),
        (lambda: residual(0, "after"), "at is 'after', but it must be pre, mid or post"),
        (lambda: norm(0, "first"), "which is 'first', but it must be attention, mlp or final"),
        (lambda: head(0, 1)[0, 1], "has no cells: write attention"),
        (lambda: attention(0, 1)[0], "0 is not a cell: write attention"),
        (lambda: head("a", 1), "layer is 'a', but it must be an integer from 0"),
        (lambda: residual(0).at(1.5), "position is 1.5, but it must be an integer"),
        (lambda: residual(0).at(range(2)), r"position is range\(0, 2\), but it must be an integer"),
        (lambda: attention(0, 1)[1:2, 0], "query is slice.*, but it must be an integer"),
        (lambda: attention(0, 1)[1, None], "key is None, but it must be an integer"),
        (lambda: operator.setitem(attention(0, 1), (1, 0), 0.5), "write edit.attention"),
        (lambda: head(0, 1).of("text"), "takes a trace, but got a str: pass model.trace"),
        (lambda: norm(0).of(Empty()), "are several stages: choose one, as in norm"),
    ],
)
def test_messages(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_integers_of_numpy_and_torch():
    assert head(np.int64(2), torch.tensor(3)) == head(2, 3)
    assert attention(0, 1)[np.int32(4), 1].at(torch.tensor(-1)) == attention(0, 1)[4, 1].at(-1)


def test_every_recorded_stage_is_a_point(gpt2):
    found = trace(gpt2, TOKENS)
    for stage in found.recorded["self", 2]:
        if stage in AXES:
            assert torch.equal(point(stage, 2).of(found), found.get(stage, 2))
    assert {"attn_norm_scale", "mlp_norm_scale", "final_norm_scale"} <= found.recorded[
        "self", 2
    ].keys()


def test_a_point_says_what_it_is():
    assert str(attention(2, 3, "cross")[5, 1]) == "cross weights layer 2 head 3 key 1 at 5"
