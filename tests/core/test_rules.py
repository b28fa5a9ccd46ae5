"""How patterns compose: rules, parts, heads and sequences."""

import pytest
import torch

from clearformer.core.patterns import Causal, Fixed, Full, Graph, Local, Row, Strided, Summary
from clearformer.core.rules import Part
from clearformer.core.structures import Each, PerHead, Region, Shifted

PATTERNS = [
    Full(), Causal(), Local(3), Strided(4), Row(5), Summary(4, 2), Fixed(4, 1),
    Graph(((0, 1), (7, 3)), 9), Region((0, 4), (2, None)), Shifted(Fixed(3, 1), 2),
    Causal() & (Local(3) | Strided(4)), Local(5) - Causal(), Fixed(5, 1) & Strided(3),
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_parts_have_every_pair_once_and_their_guides_know_where(pattern):
    place = torch.arange(-2, 19)
    total = torch.zeros(21, 21, dtype=torch.long)
    for part in pattern.parts(21):
        assert isinstance(part, Part)
        seen = part.rule.allows(place[:, None], place[None, :])
        total += seen
        for query in place:
            found = part.guide.candidates(query[None], range(-2, 19))
            assert set(place[seen[query + 2]].tolist()) <= set(found.tolist())
            assert len(found) == len(found.unique())
    assert torch.equal(total, pattern.allows(place[:, None], place[None, :]).long())


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_most_keys_is_a_bound(pattern):
    assert int(pattern.table(20, 20).sum(dim=1).max()) <= pattern.most_keys(20)


def test_without_takes_away():
    assert (Full() - Causal()).draw(3) == "· ■ ■\n· · ■\n· · ·"


def test_heads_and_rows_pass_through_compositions():
    local, strided = Local(2), Strided(3)
    pattern = Causal() & PerHead((local, strided))
    assert pattern.by_head(4) == (Causal() & local, Causal() & strided) * 2
    assert pattern.by_row(2) == (pattern,)
    assert (Causal() | Each((local, strided))).by_row(2) == (Causal() | local, Causal() | strided)
    assert Causal().by_head(4) == Causal().by_row(3) == (Causal(),)


def test_only_arithmetic_rules_fit_into_a_gpu_kernel():
    graph = Graph(((0, 1),), 2)
    assert (Causal() & Shifted(Fixed(4, 1), 2)).pointwise
    assert not (Causal() & Shifted(graph, 2)).pointwise
