"""A batch with several texts in a row, none of which sees another.

Each text is embedded as a row of its own, so that its positions count from its own beginning; then
the rows are packed, and attention is restricted to tokens of the same text. The loss is exactly
that of the texts one by one.

Axes: B batch, T tokens, N texts, L tokens of the longest text, E model width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearformer import data
from clearformer.core.cache import Cache
from clearformer.core.model import Batch, Transformer
from clearformer.core.patterns import Pattern
from clearformer.extensions.patterns import Each


class SameText(Pattern):
    """Positions of one row whose texts begin at the same place; starts is (T,)."""

    def __init__(self, starts: Tensor) -> None:
        self.starts = starts

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return self.starts[query] == self.starts[key]


@dataclass(frozen=True)
class PackedBatch(Batch):
    """Rows of several texts; `starts` is where the text of each token begins."""

    starts: Tensor | None = None  # (B, T)

    def hidden(self, model: Transformer, caches: Sequence[Cache] | None) -> Tensor:
        assert self.starts is not None
        places = torch.arange(self.tokens.shape[1], device=self.tokens.device).expand_as(
            self.starts
        )
        positions = places - self.starts  # (B, T) within each text
        text = (positions == 0).flatten().cumsum(0).view_as(positions) - 1  # (B, T) which text
        shape = int(text.max()) + 1, int(positions.max()) + 1
        alone = self.tokens.new_zeros(shape)  # (N, L)
        alone[text, positions] = self.tokens
        x = model.embedding(alone)[text, positions]  # (B, T, E)
        structure = Each(tuple(SameText(row) for row in self.starts))
        return model.stack(x, self.attention_mask, caches, structure)


def packed_batch(rows: data.PackedRows) -> PackedBatch:
    """Packed rows as tensors."""
    return PackedBatch(
        torch.from_numpy(rows.tokens),
        torch.from_numpy(rows.targets),
        torch.from_numpy(rows.attention_mask),
        None,
        torch.from_numpy(rows.starts),
    )
