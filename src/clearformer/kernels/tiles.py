"""Tiles of a sparse pattern: small dense blocks of queries and keys.

A strided pattern has a few allowed pairs in every contiguous block. But queries one stride apart
attend to the same keys: grouped together, they form dense tiles. So the queries of each part of a
pattern are sorted by the labels of its guide and split into blocks; each block gets the candidate
keys of the guide, without those that none of its queries attends to. Work and memory are those of
the tiles, about n^1.5 for the patterns of the Sparse Transformer, never n^2.

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
    """Tiles of one size; padding has the index Q or K."""

    query: Tensor  # (N, M)
    key: Tensor  # (N, J)
    seen: Tensor  # (N, M, J)


class TileBlock(NamedTuple):
    query: Tensor  # (M,) positions
    key: Tensor  # (J,) positions
    seen: Tensor  # (M, J)


@lru_cache(maxsize=32)
@torch.inference_mode(False)  # cached tensors must be usable in training too
def tiles(
    pattern: Pattern, first: int, queries: int, keys: int, device: torch.device
) -> tuple[Tiles, ...]:
    """Every allowed pair exactly once, for the last `queries` of `keys` positions.

    Positions begin at `first` (negative with left padding). A query is in at most one tile of each
    `Tiles`.
    """
    positions = range(first, first + keys)
    start = first + keys - queries
    groups = []
    for part in guide(pattern).parts(keys):
        blocks = []
        for query in _cut(torch.arange(start, positions.stop), part.guide):
            key = part.guide.candidates(query, positions)
            seen = part.rule.allows(query[:, None], key[None, :])
            used = seen.any(dim=0)
            if used.any():
                blocks.append(TileBlock(query - start, key[used] - first, seen[:, used]))
        groups += [_stack(group, queries, keys, device) for group in _groups_by_size(blocks)]
    return tuple(groups)


def _cut(queries: Tensor, by: Guide[Any]) -> Iterator[Tensor]:
    """Blocks of at most `by.block` queries with the same label; small groups are merged."""
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


def _groups_by_size(blocks: list[TileBlock]) -> Iterator[list[TileBlock]]:
    """Groups in which the largest block has at most a quarter more keys than the smallest."""
    group: list[TileBlock] = []
    for block in sorted(blocks, key=lambda block: len(block.key)):
        if group and len(block.key) > 1.25 * len(group[0].key) + 4:
            yield group
            group = []
        group.append(block)
    if group:
        yield group


def _stack(blocks: list[TileBlock], queries: int, keys: int, device: torch.device) -> Tiles:
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
