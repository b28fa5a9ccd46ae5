"""Masks combine a pattern with the padding of a batch."""

import pytest
import torch

from clearformer.core.masks import Mask, first_real_token
from clearformer.core.patterns import Causal, Fixed, Full, Local, Strided
from clearformer.extensions.heads import last_real_token
from clearformer.extensions.patterns import Graph

BATCH, KEYS = 2, 5

PATTERNS = {
    "full": Full(),
    "causal": Causal(),
    "local": Causal() & Local(2),
    "strided": Local(2) | Strided(3),
    "fixed": Causal() & Fixed(3, 1),
    "graph with a blind node": Graph(((0, 1), (1, 3), (2, 2), (4, 0), (4, 4)), 5),
}
PADDINGS = {
    "none": None,
    "right": [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]],
    "left": [[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]],
    "whole row": [[1, 1, 1, 0, 0], [0, 0, 0, 0, 0]],
}


def attention_mask_of(padding):
    rows = PADDINGS[padding]
    return None if rows is None else torch.tensor(rows, dtype=torch.bool)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("queries", [1, 3, KEYS])
def test_mask_combines_pattern_and_padding(pattern, padding, queries):
    attention_mask = attention_mask_of(padding)
    mask = Mask(PATTERNS[pattern], attention_mask)
    q, k = torch.zeros(BATCH, 1, queries, 1), torch.zeros(BATCH, 1, KEYS, 1)

    def seen(row, query, key):
        """A pair of places, counted from the first real token of the row."""
        first = (
            0
            if attention_mask is None or not attention_mask[row].any()
            else attention_mask[row].tolist().index(True)
        )
        places = torch.tensor([query - first]), torch.tensor([key - first])
        return bool(PATTERNS[pattern].allows(*places)) and (
            attention_mask is None or bool(attention_mask[row, key])
        )

    expected = [
        [[seen(b, i, j) for j in range(KEYS)] for i in range(KEYS - queries, KEYS)]
        for b in range(BATCH)
    ]
    assert mask.table(q, k).expand(BATCH, 1, queries, KEYS)[:, 0].tolist() == expected
    if mask.hides_nothing(queries):
        assert mask.table(q, k).all()
    if mask.is_triangle(queries, KEYS):
        assert torch.equal(mask.table(q, k)[0], torch.ones(KEYS, KEYS).tril().bool())


def test_first_real_token():
    assert first_real_token(torch.tensor([[0, 0, 1], [1, 0, 1]], dtype=torch.bool)).tolist() == [
        2,
        0,
    ]


def test_last_real_token():
    attention_mask = torch.tensor([[1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 0]], dtype=torch.bool)
    assert last_real_token(attention_mask).tolist() == [1, 1, 2, 2]


def test_full_mask_allows_more_queries_than_keys():
    """A long target attends to a short source."""
    q, k = torch.zeros(2, 3, 9, 4), torch.zeros(2, 3, 5, 4)
    assert Mask(Full()).table(q, k).expand(2, 3, 9, 5).all()
