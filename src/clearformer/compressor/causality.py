"""Causality check: a prediction must not change with later tokens.

Axes: T tokens, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from clearformer.core.heads import at_least_float32
from clearformer.core.model import Transformer
from clearformer.inference.modes import inference_mode

TOLERANCE = 1e-3  # of the largest logit; rounding changes about a millionth


@dataclass(frozen=True)
class Leak:
    """A prediction that changed with a token after it."""

    position: int  # the last token that the prediction may use
    changed: int  # the first token that was changed

    def __str__(self) -> str:
        return (
            f"its prediction after token {self.position} changes when token {self.changed} and "
            f"those after it do"
        )


def find_leak(module: Transformer, tokens: np.ndarray, vocabulary: int) -> Leak | None:
    """Compare the logits of a text (T,) with those of texts that end differently."""
    if len(tokens) < 2:
        return None
    length = len(tokens)
    with inference_mode(module) as device:
        text = torch.from_numpy(tokens.astype(np.int64)).to(device)
        logits = _logits(module, text)  # (T, V)
        bound = TOLERANCE * float(logits.abs().max())
        for changed in sorted({1, length // 2, length - 1}):
            other = text.clone()
            other[changed:] = (other[changed:] + 1) % vocabulary
            moved = (_logits(module, other) - logits)[:changed].abs().amax(dim=-1)  # (changed,)
            different = (moved > bound) | moved.isnan()
            if different.any():
                return Leak(int(different.int().argmax()), changed)
    return None


def _logits(module: Transformer, text: torch.Tensor) -> torch.Tensor:
    return at_least_float32(module.head(module.hidden(text[None]))[0])
