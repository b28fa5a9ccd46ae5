"""Pattern guides: where the pairs of a pattern are; a pattern without a guide is dense."""

from dataclasses import dataclass

import pytest
import torch

from clearformer.core.kernels import explicit
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal, Fixed, Full, Local, Pattern, Strided
from clearformer.extensions.patterns import Graph, Region, Row, Shifted, Summary
from clearformer.kernels.blockwise import blockwise
from clearformer.kernels.guides import Part, blind_positions, guide


@dataclass(frozen=True)
class EvenKeys(Pattern):
    """A pattern that no guide was written for."""

    def allows(self, query, key):
        return (key % 2 == 0) & (query == query)


@dataclass(frozen=True)
class Further(Local):
    """A subclass with another rule, for which the guide of its base would be wrong."""

    def allows(self, query, key):
        return abs(query - key) < 3 * self.window


PATTERNS = [
    Full(), Causal(), Local(3), Strided(4), Row(5), Summary(4, 2), Fixed(4, 1),
    Graph(((0, 1), (7, 3)), 9), Region((0, 4), (2, None)), Shifted(Fixed(3, 1), 2),
    Causal() & (Local(3) | Strided(4)), Local(5) - Causal(), Fixed(5, 1) & Strided(3),
    EvenKeys(), Causal() & (EvenKeys() | Further(2)),
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_parts_cover_every_pair_once_and_candidates_contain_them(pattern):
    place = torch.arange(-2, 19)
    total = torch.zeros(21, 21, dtype=torch.long)
    for part in guide(pattern).parts(21):
        assert isinstance(part, Part)
        seen = part.rule.allows(place[:, None], place[None, :])
        total += seen
        for query in place:
            found = part.guide.candidates(query[None], range(-2, 19))
            assert set(place[seen[query + 2]].tolist()) <= set(found.tolist())
            assert len(found) == len(found.unique())
    assert torch.equal(total, pattern.allows(place[:, None], place[None, :]).long())


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_max_keys_is_an_upper_bound(pattern):
    assert int(pattern.table(20, 20).sum(dim=1).max()) <= guide(pattern).max_keys(20)


def test_only_arithmetic_rules_are_pointwise():
    graph = Graph(((0, 1),), 2)
    assert guide(Causal() & Shifted(Fixed(4, 1), 2)).pointwise
    assert not guide(Causal() & Shifted(graph, 2)).pointwise
    assert not guide(Causal() & EvenKeys()).pointwise  # who knows what it does


@pytest.mark.parametrize(
    "pattern", [EvenKeys(), Further(2), Causal() & EvenKeys(), Local(4) & Further(1)], ids=str
)
def test_blockwise_supports_pattern_without_guide(pattern):
    q, k, v = torch.randn(3, 2, 4, 9, 8)
    expected = explicit(q, k, v, Mask(pattern), None, 0.0)
    torch.testing.assert_close(blockwise(q, k, v, Mask(pattern), None, 0.0), expected)


def test_blind_positions_lists_queries_without_keys():
    assert blind_positions(Causal(), 100) == []
    assert blind_positions(Full() - Causal(), 5) == [4]
    assert blind_positions(Graph(((0, 1), (2, 2)), 3), 4) == [1, 3]
    assert blind_positions(Causal() & Strided(7), 3000) == []
