"""A vector for each text: the last hidden states of its tokens, pooled into one.

Texts that mean alike lie near each other if the model was trained for that (all-MiniLM was);
any other model gives vectors too, of what it happens to know.

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
from clearformer.data.rows import count_cut
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
    """Vectors (texts, E) in the order of the texts; what is longer than `length` is cut."""
    rows = _rows(tokenizer, texts)
    device = next(model.parameters()).device
    found: list[Tensor | None] = [None] * len(rows)
    with evaluating(model), torch.inference_mode():
        for each in data.evaluation_rows(rows, batch, length):
            keep = torch.from_numpy(each.keep).to(device)
            hidden = model.hidden(torch.from_numpy(each.tokens).to(device), keep)  # (B, T, E)
            vectors = POOLS[pool](hidden, keep).float().cpu()  # (B, E)
            for place, vector in zip(each.ids.tolist(), vectors, strict=True):
                found[place] = vector
    vectors = torch.stack([vector for vector in found if vector is not None])  # (texts, E)
    return F.normalize(vectors, dim=-1) if normalised else vectors


def too_long(tokenizer: Tokenizer, texts: Sequence[str], length: int) -> int:
    """How many texts `embed` would cut."""
    return count_cut(_rows(tokenizer, texts), length)


def _rows(tokenizer: Tokenizer, texts: Sequence[str]) -> data.Rows:
    rows = data.encode_rows(data.Table("the texts", tuple(texts), None), tokenizer, ())
    empty = (rows.lengths + len(rows.before) + len(rows.after)) == 0
    if empty.any():
        raise ValueError(f"text {int(empty.argmax()) + 1} is empty, so there is nothing to embed")
    return rows
