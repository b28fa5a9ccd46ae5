"""Transformer-XL scores under causal patterns: same values from non-negative distances only."""

import pytest
import torch

from clearformer.core.positions import RelativeXL
from clearformer.extensions.positions import ALiBi
from clearformer.kernels.causal_xl import causal_form

HEADS, HEAD_WIDTH, WIDTH = 2, 4, 8
SHAPES = [(5, 5), (2, 5), (3, 4), (2, 2), (1, 5), (1, 2), (1, 1)]


@pytest.mark.parametrize(("queries", "keys"), SHAPES)
def test_causal_form_matches_full_form_on_visible_pairs(queries, keys):
    learned = RelativeXL().attention_parameters(WIDTH, HEADS, HEAD_WIDTH).double()
    with torch.no_grad():
        learned.content.normal_()
        learned.distance.normal_()
    behind = causal_form(RelativeXL())
    q, k = (torch.randn(2, HEADS, count, HEAD_WIDTH).double() for count in (queries, keys))
    seen = torch.ones(queries, keys).tril(keys - queries).bool()
    (moved, bias), (same, less) = (each.score(q, k, learned) for each in (RelativeXL(), behind))
    assert torch.equal(moved, same)
    assert less.shape == bias.shape
    torch.testing.assert_close(less[..., seen], bias[..., seen])
    assert len(behind.distances(queries, keys, q, learned.project)[0]) == keys + 1


def test_causal_form_leaves_other_schemes_unchanged():
    assert causal_form(ALiBi()) == ALiBi()
