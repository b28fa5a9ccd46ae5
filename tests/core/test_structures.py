"""Patterns that differ by place, head or sequence."""

import re

import pytest
import torch

from clearformer.core import kernels
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal, Graph, Local, Row, Strided
from clearformer.core.structures import Each, PerHead, Region, Shifted


def test_a_region_is_a_rectangle():
    assert Region((1, 3), (0, 2)).draw(4) == "· · · ·\n■ ■ · ·\n■ ■ · ·\n· · · ·"
    assert Region((2, None), (3, None)).draw(4) == "· · · ·\n· · · ·\n· · · ■\n· · · ■"


def test_a_shifted_pattern_counts_from_its_place():
    whole, moved = Row(3).table(9, 9), Shifted(Row(3), 2).table(11, 11)
    assert torch.equal(moved[2:, 2:], whole)


def test_heads_look_as_they_are_told_in_every_kernel():
    q, k, v = torch.randn(3, 2, 4, 9, 8)
    several = (Causal() & Local(2), Causal() & Strided(3))
    mask = Mask(PerHead(several))
    for kernel in (kernels.loop, kernels.explicit, kernels.fused, kernels.blockwise):
        whole = kernel(q, k, v, mask, None, 0.0)
        for head in range(4):
            own = [x[:, head : head + 1] for x in (q, k, v)]
            alone = kernels.explicit(*own, Mask(several[head % 2]), None, 0.0)
            torch.testing.assert_close(whole[:, head : head + 1], alone)


@pytest.mark.parametrize("padded", [False, True])
def test_sequences_look_as_they_are_told_in_every_kernel(padded):
    q, k, v = torch.randn(3, 2, 4, 9, 8)
    keep = torch.arange(9) >= torch.tensor([[0], [3]]) if padded else None
    several = (Graph(((0, 1), (1, 0), (4, 2)), 5), Causal())
    for kernel in (kernels.loop, kernels.explicit, kernels.fused, kernels.blockwise):
        whole = kernel(q, k, v, Mask(Each(several), keep), None, 0.0)
        for row in range(2):
            own = [x[row : row + 1] for x in (q, k, v)]
            mask = Mask(several[row], None if keep is None else keep[row : row + 1])
            torch.testing.assert_close(
                whole[row : row + 1], kernels.explicit(*own, mask, None, 0.0)
            )


def test_together_they_allow_what_one_of_them_does():
    both = PerHead((Local(2), Strided(3)))
    assert torch.equal(both.table(9, 9), (Local(2) | Strided(3)).table(9, 9))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PerHead(()), "PerHead: it has no patterns, but it needs at least 1"),
        (
            lambda: Each((Causal(),) * 3).by_row(2),
            "Each: there are 3 patterns for 2 sequences: there must be one for each",
        ),
    ],
)
def test_impossible_numbers_are_refused(make, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make()
