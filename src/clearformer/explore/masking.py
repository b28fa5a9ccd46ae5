"""Masked language modelling: how BERT's training input is masked."""

from __future__ import annotations

from typing import Any

import numpy as np

from clearformer.data.masking import UNITS, MaskingPolicy, TokenMasker
from clearformer.data.rows import IGNORE
from clearformer.explore import token_display
from clearformer.explore.inputs import input_ids, mask_token
from clearformer.explore.library import LoadedModel
from clearformer.explore.limits import Limits


def corrupt(loaded: LoadedModel, text: str, seed: int, limits: Limits) -> dict[str, Any]:
    """The tokens of a text, and how the model's training masks each of them."""
    model = loaded.model
    tokenizer, mask = mask_token(loaded)
    ids = input_ids(loaded, text, None, limits)
    row = np.asarray([ids], dtype=np.int64)
    policy, known = masking_policy(loaded)
    shown, targets = TokenMasker(tokenizer, policy).corrupt(row, np.ones_like(row, bool), seed, 0)
    tokens = token_display.tokens(model, ids)
    replacements = token_display.vocabulary_items(model, shown[0].tolist())
    for i, token in enumerate(tokens):
        token["fate"] = fate(ids[i], int(shown[0, i]), int(targets[0, i]), mask)
        token["became"] = replacements[i] if token["fate"] in ("mask", "random") else None
    shares = {
        "rate": policy.rate,
        "mask": policy.mask_replace,
        "random": policy.random_replace,
        "kept": 1 - policy.mask_replace - policy.random_replace,
    }
    return {"tokens": tokens, "seed": seed, "policy": shares, "known": known}


def masking_policy(loaded: LoadedModel) -> tuple[MaskingPolicy, bool]:
    """How the training of a model masked; BERT's own way, and False, if that is not known."""
    entry = loaded.entry
    masking = entry.run_config.data.masking if entry.is_native else None
    if masking is None:
        return MaskingPolicy(), False
    policy = MaskingPolicy(
        masking.rate, masking.mask_replace, masking.random_replace, UNITS[masking.unit]
    )
    return policy, True


def fate(before: int, after: int, target: int, mask: int) -> str:
    """Untouched, or to be predicted: masked, replaced at random, or kept."""
    if target == IGNORE:
        return "untouched"
    if after == mask:
        return "mask"
    return "random" if after != before else "kept"
