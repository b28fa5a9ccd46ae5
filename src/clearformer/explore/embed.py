"""Text embeddings: the last hidden states of the tokens, pooled into one vector.

Texts of similar meaning have similar vectors if the model was trained for that, as all-MiniLM was.
Any other model gives vectors too.

Axes: B batch, T tokens, E model width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer import data
from clearformer.core.heads import first_pool, max_pool, mean_pool
from clearformer.core.model import Transformer
from clearformer.data.rows import count_truncated
from clearformer.inference.modes import evaluating
from clearformer.text import Tokenizer

POOLS = {"mean": mean_pool, "max": max_pool, "first": first_pool}
Pooling = Literal["mean", "max", "first"]


def embed(
    model: Transformer,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    length: int,
    pool: Pooling = "mean",
    normalised: bool = True,
    batch: int = 32,
) -> Tensor:
    """Vectors (texts, E) in the order of the texts; longer texts are cut to `length` tokens."""
    rows = _rows(tokenizer, texts)
    device = next(model.parameters()).device
    by_row: dict[int, Tensor] = {}
    with evaluating(model), torch.inference_mode():
        for each in data.evaluation_rows(rows, batch, length):
            keep = torch.from_numpy(each.keep).to(device)
            hidden = model.hidden(torch.from_numpy(each.tokens).to(device), keep)  # (B, T, E)
            vectors = POOLS[pool](hidden, keep).float().cpu()  # (B, E)
            by_row |= zip(each.ids.tolist(), vectors, strict=True)
    vectors = torch.stack([by_row[row] for row in range(len(rows))])  # (texts, E)
    return F.normalize(vectors, dim=-1) if normalised else vectors


def too_long(tokenizer: Tokenizer, texts: Sequence[str], length: int) -> int:
    """The number of texts that `embed` would cut."""
    return count_truncated(_rows(tokenizer, texts), length)


def _rows(tokenizer: Tokenizer, texts: Sequence[str]) -> data.Rows:
    rows = data.encode_rows(data.Table("the texts", tuple(texts), None), tokenizer, ())
    empty = (rows.lengths + len(rows.prefix_ids) + len(rows.suffix_ids)) == 0
    if empty.any():
        raise ValueError(f"text {int(empty.argmax()) + 1} is empty, so there is nothing to embed")
    return rows
