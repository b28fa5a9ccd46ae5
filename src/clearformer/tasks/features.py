"""Embeddings of texts, and the task of models that are not trained here.

Heads that come with an imported checkpoint and have no objective here (next sentence alone,
multiple choice) have this task: `embed` is the only verb that they support.

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
from clearformer.inference.modes import inference_mode
from clearformer.tasks.task import Task
from clearformer.text import Tokenizer

POOLS = {"mean": mean_pool, "max": max_pool, "first": first_pool}
Pooling = Literal["mean", "max", "first"]


class FeaturesTask(Task):
    """No objective: nothing is trained or evaluated."""


@dataclass(frozen=True)
class Embeddings:
    """A vector for each text, in order."""

    vectors: Tensor  # (texts, E)
    cut: int  # texts that were longer than the model's context and were truncated


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
    """Pool the last hidden states of each text into a vector; texts are truncated to `length`.

    Texts of similar meaning have similar vectors only if the model was trained for that, as
    all-MiniLM was.
    """
    rows = _rows(tokenizer, texts)
    vectors = torch.empty(0)
    with inference_mode(model) as device:
        for each in data.evaluation_rows(rows, batch, length):
            attention_mask = torch.from_numpy(each.attention_mask).to(device)
            tokens = torch.from_numpy(each.tokens).to(device)
            hidden = model.hidden(tokens, attention_mask)  # (B, T, E)
            pooled = POOLS[pool](hidden, attention_mask).float().cpu()  # (B, E)
            if not len(vectors):
                vectors = torch.empty(len(rows), pooled.shape[1])
            vectors[torch.from_numpy(each.ids)] = pooled
    vectors = F.normalize(vectors, dim=-1) if normalize else vectors
    return Embeddings(vectors, data.count_truncated(rows, length))


def _rows(tokenizer: Tokenizer, texts: Sequence[str | Sequence[int]]) -> data.Rows:
    rows = data.encode_texts(texts, tokenizer)
    empty = (rows.lengths + len(rows.prefix_ids) + len(rows.suffix_ids)) == 0
    if empty.any():
        raise ValueError(f"text {int(empty.argmax()) + 1} is empty, so there is nothing to embed")
    return rows
