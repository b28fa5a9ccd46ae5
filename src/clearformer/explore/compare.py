"""Compares two models, or two checkpoints of one, on the same text.

Axes: L layers, H heads, T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from clearformer.explore import arrays, token_display
from clearformer.explore.inputs import decoder_input_ids, input_ids
from clearformer.explore.library import LoadedModel
from clearformer.explore.limits import Limits
from clearformer.explore.trace import trace
from clearformer.http_server.errors import wrong_kind


@dataclass(frozen=True)
class TracedSide:
    """The trace of one of the two models."""

    loaded: LoadedModel
    ids: list[int]
    target: list[int] | None
    maps: dict[str, Tensor]  # by part, each (L, H, t, t)
    logits: Tensor  # (T, V) or (C,)


def trace_side(
    loaded: LoadedModel, text: str, target: list[int] | None, limits: Limits
) -> TracedSide:
    """Trace one model; to be called on its worker."""
    ids = input_ids(loaded, text, None, limits)
    model_input: Any = ids
    if "translate" in loaded.config.verbs:
        # Both get the same target, so that their outputs can be compared.
        target = decoder_input_ids(loaded, ids, None, limits) if target is None else target
        model_input = (ids, target)
    traced = trace(loaded.model, model_input, ("thumbs",))
    maps = {part: traced.stacked("thumbs", part) for part in traced.parts}
    return TracedSide(loaded, ids, target, maps, traced.logits.float().cpu())


def compare(a: TracedSide, b: TracedSide) -> dict[str, Any]:
    """The differences b - a of every head, and of the predictions."""
    if a.ids != b.ids:
        raise wrong_kind(
            "the two models split this text into different tokens",
            hint="choose two with the same tokenizer",
        )
    shape_a, shape_b = ({part: m.shape for part, m in side.maps.items()} for side in (a, b))
    if shape_a != shape_b:
        raise wrong_kind(
            "the two models have different numbers of layers or heads",
            hint="choose two checkpoints of one run, or two models of one size",
        )
    if a.logits.shape != b.logits.shape:
        raise wrong_kind("the two models do not predict the same tokens or classes")
    differences = {part: b.maps[part] - a.maps[part] for part in a.maps}
    main = next(iter(differences))
    log_a, log_b = (side.logits.log_softmax(-1) for side in (a, b))
    kl = (log_a.exp() * (log_a - log_b)).sum(-1).clamp(min=0) / math.log(2)
    tokens = a.target if a.target is not None else a.ids
    return {
        "tokens": token_display.tokens(a.loaded.model, a.ids),
        "output_tokens": token_display.tokens(a.loaded.model, tokens),
        "parts": list(differences),
        "diff_thumbs": {part: arrays.small(each) for part, each in differences.items()},
        "head_max": {
            part: arrays.floats(each.abs().amax((-2, -1))) for part, each in differences.items()
        },
        "kl": arrays.floats(kl.reshape(-1)),
        "max_abs": arrays.number(float(differences[main].abs().max())),
        "max_logit": arrays.number(float((a.logits - b.logits).abs().max())),
    }
