"""Tiles of a sparse pattern: small dense blocks of queries and keys.

A strided pattern touches every block of the plain order, if only in a few places. But queries
a whole stride apart see the same keys: brought together, they form dense tiles. So each part of
a pattern sorts its queries by the label that its guide gives them, cuts them into blocks, and
asks for each block which keys come into question; keys that nobody in the block sees are left
out. The work and the memory are those of the tiles, about n^1.5 for the patterns of the Sparse
Transformer, never n^2.

Axes: N tiles, M queries of a tile, J keys of a tile, Q queries, K keys.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from clearformer.core.patterns import Pattern
from clearformer.kernels.guides import Guide, guide


class Tiles(NamedTuple):
    """Tiles of one size. A place that is only there to fill a tile has number Q, or K."""

    query: Tensor  # (N, M)
    key: Tensor  # (N, J)
    seen: Tensor  # (N, M, J)


class Block(NamedTuple):
    query: Tensor  # (M,) positions
    key: Tensor  # (J,) positions
    seen: Tensor  # (M, J)


@lru_cache(maxsize=32)
@torch.inference_mode(False)  # what was found while generating must serve training too
def tiles(
    pattern: Pattern, first: int, queries: int, keys: int, device: torch.device
) -> tuple[Tiles, ...]:
    """Every pair that the pattern allows, once, for the last `queries` of `keys` positions.

    Positions begin at `first` (below zero where padding comes first). A query is in one tile
    at most of each `Tiles`.
    """
    places = range(first, first + keys)
    start = first + keys - queries
    found = []
    for part in guide(pattern).parts(keys):
        blocks = []
        for query in _cut(torch.arange(start, places.stop), part.guide):
            key = part.guide.candidates(query, places)
            seen = part.rule.allows(query[:, None], key[None, :])
            some = seen.any(dim=0)
            if some.any():
                blocks.append(Block(query - start, key[some] - first, seen[:, some]))
        found += [_stack(group, queries, keys, device) for group in _of_like_size(blocks)]
    return tuple(found)


def _cut(queries: Tensor, by: Guide[Any]) -> Iterator[Tensor]:
    """Queries with one label together, at most `by.block` of them; few go with the next."""
    label, order = by.query_label(queries).sort(stable=True)
    sizes = torch.unique_consecutive(label, return_counts=True)[1].tolist()
    waiting: list[Tensor] = []
    for same in queries[order].split(sizes):
        if sum(map(len, waiting)) + len(same) > by.block and waiting:
            yield torch.cat(waiting)
            waiting = []
        pieces = same.tensor_split(-(-len(same) // by.block))
        yield from pieces[:-1]
        waiting.append(pieces[-1])
    if waiting:
        yield torch.cat(waiting)


def _of_like_size(blocks: list[Block]) -> Iterator[list[Block]]:
    """Groups in which the largest block has at most a quarter more keys than the smallest."""
    group: list[Block] = []
    for block in sorted(blocks, key=lambda block: len(block.key)):
        if group and len(block.key) > 1.25 * len(group[0].key) + 4:
            yield group
            group = []
        group.append(block)
    if group:
        yield group


def _stack(blocks: list[Block], queries: int, keys: int, device: torch.device) -> Tiles:
    tallest = max(len(block.query) for block in blocks)
    widest = max(len(block.key) for block in blocks)
    query = torch.full((len(blocks), tallest), queries)
    key = torch.full((len(blocks), widest), keys)
    seen = torch.zeros(len(blocks), tallest, widest, dtype=torch.bool)
    for i, block in enumerate(blocks):
        height, width = block.seen.shape
        query[i, :height], key[i, :width] = block.query, block.key
        seen[i, :height, :width] = block.seen
    return Tiles(query.to(device), key.to(device), seen.to(device))
