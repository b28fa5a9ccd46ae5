"""Masked language modelling: how BERT's training input is masked."""

from __future__ import annotations

from typing import Any

import numpy as np

from clearformer.data.masking import MaskingPolicy, TokenMasker
from clearformer.data.rows import IGNORE
from clearformer.explore import token_display
from clearformer.explore.inputs import input_ids, mask_token
from clearformer.explore.library import LoadedModel
from clearformer.explore.limits import Limits


def corrupt(loaded: LoadedModel, text: str, seed: int, limits: Limits) -> dict[str, Any]:
    """The tokens of a text, and how the training masks each of them."""
    model = loaded.model
    tokenizer, mask = mask_token(loaded)
    ids = input_ids(loaded, text, None, limits)
    row = np.asarray([ids], dtype=np.int64)
    shown, targets = TokenMasker(tokenizer, MaskingPolicy()).corrupt(
        row, np.ones_like(row, bool), seed, 0
    )
    tokens = token_display.tokens(model, ids)
    replacements = token_display.vocabulary_items(model, shown[0].tolist())
    for i, token in enumerate(tokens):
        token["fate"] = fate(ids[i], int(shown[0, i]), int(targets[0, i]), mask)
        token["became"] = replacements[i] if token["fate"] in ("mask", "random") else None
    return {"tokens": tokens, "seed": seed}


def fate(before: int, after: int, target: int, mask: int) -> str:
    """Untouched, or to be predicted: masked, replaced at random, or kept."""
    if target == IGNORE:
        return "untouched"
    if after == mask:
        return "mask"
    return "random" if after != before else "kept"
