"""Features: a model without an objective gives a vector for each text.

Heads that come with a checkpoint and are not trained here (token classes, answer spans, next
sentence, multiple choice) have the same task: `embed` is the only verb that they answer.

Axes: B batch, T tokens, E model width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer import data
from clearformer.core.heads import first_pool, mean_pool
from clearformer.core.model import Transformer
from clearformer.extensions.heads import max_pool
from clearformer.tasks.measured import evaluating
from clearformer.tasks.task import Task
from clearformer.text import Tokenizer

POOLS = {"mean": mean_pool, "max": max_pool, "first": first_pool}
Pooling = Literal["mean", "max", "first"]


class FeaturesTask(Task):
    """Nothing to learn or to evaluate."""


@dataclass(frozen=True)
class Embeddings:
    """A vector for each text, in their order."""

    vectors: Tensor  # (texts, E)
    cut: int  # texts that were longer than the model reads


def embed(
    model: Transformer,
    tokenizer: Tokenizer,
    texts: Sequence[str | Sequence[int]],
    *,
    length: int,
    pool: Pooling = "mean",
    normalize: bool = True,
    batch: int = 32,
) -> Embeddings:
    """Pool the last hidden states of each text into a vector; what is longer than `length` tokens
    is cut.

    Texts of similar meaning have similar vectors if the model was trained for that, as all-MiniLM
    was; any other model gives vectors too.
    """
    rows = _rows(tokenizer, texts)
    found = torch.empty(0)
    with evaluating(model) as device:
        for each in data.evaluation_rows(rows, batch, length):
            attention_mask = torch.from_numpy(each.attention_mask).to(device)
            tokens = torch.from_numpy(each.tokens).to(device)
            hidden = model.hidden(tokens, attention_mask)  # (B, T, E)
            vectors = POOLS[pool](hidden, attention_mask).float().cpu()  # (B, E)
            if not len(found):
                found = torch.empty(len(rows), vectors.shape[1])
            found[torch.from_numpy(each.ids)] = vectors
    vectors = F.normalize(found, dim=-1) if normalize else found
    return Embeddings(vectors, data.count_truncated(rows, length))


def _rows(tokenizer: Tokenizer, texts: Sequence[str | Sequence[int]]) -> data.Rows:
    rows = data.encode_texts(texts, tokenizer)
    empty = (rows.lengths + len(rows.prefix_ids) + len(rows.suffix_ids)) == 0
    if empty.any():
        raise ValueError(f"text {int(empty.argmax()) + 1} is empty, so there is nothing to embed")
    return rows
