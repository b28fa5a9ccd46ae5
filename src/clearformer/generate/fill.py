"""Predictions for masked tokens: the most likely ones for each [MASK]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from clearformer.config import ModelConfig
from clearformer.core.heads import at_least_float32
from clearformer.core.model import Transformer
from clearformer.text import Tokenizer


@dataclass(frozen=True)
class Candidate:
    """A token for a masked position, its text, and its probability."""

    id: int
    piece: str
    probability: float


@torch.inference_mode()
def fill(
    model: Transformer,
    config: ModelConfig,
    tokenizer: Tokenizer,
    text: str | Sequence[int],
    top_k: int,
) -> list[list[Candidate]]:
    """Return the `top_k` candidates of each [MASK], in the order of the text.

    A text may be given by its ids, without the special tokens around it.
    """
    head: Any = model.head
    config.require_verb("fill")
    if tokenizer.mask is None:
        raise ValueError(
            f"{config.name} has a {tokenizer.kind} tokenizer, which has no [MASK]: use a run of a "
            f"masked model such as bert-mini"
        )
    if not 1 <= top_k <= tokenizer.size:
        raise ValueError(f"top_k is {top_k}, but it must be from 1 to {tokenizer.size:,}")
    inside = tokenizer.encode(text) if isinstance(text, str) else np.array(text, dtype=np.int32)
    ids = np.concatenate((tokenizer.prefix_ids, inside, tokenizer.suffix_ids))
    if len(ids) > config.length:
        raise ValueError(
            f"the text has {len(ids):,} tokens, but {config.name} reads {config.length:,} at a "
            f"time: give a shorter one"
        )
    places = np.flatnonzero(ids == tokenizer.mask)
    if not len(places):
        raise ValueError("the text has no [MASK] to fill: write [MASK] where a word is missing")
    device = next(model.parameters()).device
    tokens = torch.from_numpy(ids.astype(np.int64))[None].to(device)  # (1, T)
    hidden = model.hidden(tokens)[0, torch.from_numpy(places).to(device)]  # (masks, E)
    probabilities = at_least_float32(head.token_head(hidden)).softmax(-1)  # (masks, V)
    likely = probabilities.topk(top_k)
    found = []
    for values, numbers in zip(likely.values.tolist(), likely.indices.tolist(), strict=True):
        pieces = tokenizer.pieces(numbers)
        found.append([Candidate(*each) for each in zip(numbers, pieces, values, strict=True)])
    return found
