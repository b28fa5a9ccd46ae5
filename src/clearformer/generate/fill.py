"""Predictions for masked tokens: the most likely ones for each [MASK]."""

from __future__ import annotations

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
    model: Transformer, config: ModelConfig, tokenizer: Tokenizer, text: str, top: int
) -> list[list[Candidate]]:
    """Return the `top` candidates of each [MASK], in the order of the text."""
    head: Any = model.head
    config.require_verb("fill")
    if tokenizer.mask is None:
        raise ValueError(
            f"{config.name} has a {tokenizer.kind} tokenizer, which has no [MASK]: use a run of a "
            f"masked model such as bert-mini"
        )
    if not 1 <= top <= tokenizer.size:
        raise ValueError(f"top is {top}, but it must be from 1 to {tokenizer.size:,}")
    ids = np.concatenate((tokenizer.prefix_ids, tokenizer.encode(text), tokenizer.suffix_ids))
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
    likely = at_least_float32(head.token_head(hidden)).softmax(-1).topk(top)  # each (masks, top)
    found = []
    for values, numbers in zip(likely.values.tolist(), likely.indices.tolist(), strict=True):
        pieces = tokenizer.pieces(numbers)
        found.append([Candidate(*each) for each in zip(numbers, pieces, values, strict=True)])
    return found
