"""Tiles of a pattern: every allowed pair in exactly one tile."""

import pytest
import torch

from clearformer.core.patterns import Causal, Fixed, Local, Strided
from clearformer.extensions.patterns import Graph, Region, Row, Shifted
from clearformer.kernels.guides import count_pairs
from clearformer.kernels.tiles import tiles

CPU = torch.device("cpu")
PATTERNS = {
    "strided": Causal() & (Local(5) | Strided(5)),
    "fixed": Causal() & Fixed(6, 2),
    "row and column": Row(6) | Strided(6),
    "graph": Graph(((0, 1), (5, 3), (6, 6), (20, 0), (20, 19)), 21),
    "stride of one": Strided(1) & Local(70),
    "long stride": Strided(1000),
    "shifted": Shifted(Row(7), 3) | Region((4, 9), (0, 2)),
    "without": Local(90) - Strided(3),
}


@pytest.mark.parametrize("first", [0, -7])
@pytest.mark.parametrize(("queries", "keys"), [(1, 30), (30, 30), (17, 101), (200, 200)])
@pytest.mark.parametrize("name", PATTERNS)
def test_every_allowed_pair_is_in_exactly_one_tile(name, queries, keys, first):
    pattern = PATTERNS[name]
    count = torch.zeros(queries + 1, keys + 1, dtype=torch.long)
    for query, key, seen in tiles(pattern, first, queries, keys, CPU):
        real = query[query < queries]
        assert len(real) == len(real.unique())
        for q, k, s in zip(query, key, seen, strict=True):
            assert k[k < keys].unique().numel() == (k < keys).sum()
            count[q[:, None], k[None, :]] += s.long()
            assert s.any(dim=0)[k < keys].all(), "a key that nobody in the tile sees"
    place = torch.arange(first, first + keys)
    expected = pattern.allows(place[-queries:, None], place[None, :])
    assert torch.equal(count[:-1, :-1], expected.long())
    assert not count[-1].any()
    assert not count[:, -1].any()


def test_strided_pattern_has_dense_tiles():
    """In position order every block would be touched, with only 1 / stride of it used."""
    found = tiles(Strided(16), 0, 256, 256, CPU)
    assert sum(each.seen.numel() for each in found) <= 4 * count_pairs(Strided(16), 256)
    found = tiles(Strided(64), 0, 4096, 4096, CPU)
    assert sum(each.seen.numel() for each in found) == count_pairs(Strided(64), 4096)


def test_empty_pattern_has_no_tiles():
    assert tiles(Graph((), 5), 0, 5, 5, CPU) == ()


def test_tiles_cached_in_inference_mode_are_usable_in_training():
    tiles.cache_clear()
    with torch.inference_mode():
        (found,) = tiles(Causal() & Local(2), 0, 8, 8, CPU)
    assert not found.seen.is_inference()
