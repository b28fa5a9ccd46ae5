"""Graph and image patterns, and patterns per head and per sequence."""

import torch

from clearformer.core.patterns import Causal, Local, Strided
from clearformer.extensions.patterns import Each, PerHead, Region, Row, Shifted


def test_by_head_and_by_row_distribute_over_compositions():
    local, strided = Local(2), Strided(3)
    pattern = Causal() & PerHead((local, strided))
    assert pattern.by_head(4) == (Causal() & local, Causal() & strided) * 2
    assert pattern.by_row(2) == (pattern,)
    assert (Causal() | Each((local, strided))).by_row(2) == (Causal() | local, Causal() | strided)
    assert Causal().by_head(4) == Causal().by_row(3) == (Causal(),)


def test_region_is_a_rectangle():
    assert Region((1, 3), (0, 2)).draw(4) == "· · · ·\n■ ■ · ·\n■ ■ · ·\n· · · ·"
    assert Region((2, None), (3, None)).draw(4) == "· · · ·\n· · · ·\n· · · ■\n· · · ■"


def test_shifted_pattern_starts_at_offset():
    whole, moved = Row(3).table(9, 9), Shifted(Row(3), 2).table(11, 11)
    assert torch.equal(moved[2:, 2:], whole)


def test_per_head_table_is_union():
    both = PerHead((Local(2), Strided(3)))
    assert torch.equal(both.table(9, 9), (Local(2) | Strided(3)).table(9, 9))
