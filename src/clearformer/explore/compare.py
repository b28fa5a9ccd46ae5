"""Two models, or two checkpoints of one, on the same text: where do they differ?

Axes: L layers, H heads, T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearformer.explore import arrays, token_display
from clearformer.explore.errors import wrong_kind
from clearformer.explore.inputs import own_ids, own_target
from clearformer.explore.library import Opened
from clearformer.explore.limits import Limits
from clearformer.explore.trace import trace


@dataclass(frozen=True)
class Side:
    """What one model made of the text."""

    opened: Opened
    ids: list[int]
    target: list[int] | None
    maps: dict[str, Tensor]  # by part, each (L, H, t, t)
    logits: Tensor  # (T, V) or (C,)


def look(opened: Opened, text: str, target: list[int] | None, limits: Limits) -> Side:
    """One model on the text; to be called on its own worker."""
    ids = own_ids(opened, text, None, limits)
    given: Any = ids
    if "translate" in opened.config.verbs:
        # Both are told the same target, or they could not be compared.
        target = own_target(opened, ids, None, limits) if target is None else target
        given = (ids, target)
    found = trace(opened.subject, given, ("thumbs",))
    maps = {
        part: torch.stack([own["thumbs"][0] for (p, _), own in found.recorded.items() if p == part])
        for part in found.parts
    }
    return Side(opened, ids, target, maps, found.logits.float().cpu())


def compare(a: Side, b: Side) -> dict[str, Any]:
    """B minus A: of every head, and of what would come next."""
    if a.ids != b.ids:
        raise wrong_kind(
            "the two models read this text as different tokens, so nothing stands beside anything",
            hint="choose two with the same tokenizer",
        )
    shapes = [{part: tuple(each.shape) for part, each in side.maps.items()} for side in (a, b)]
    if shapes[0] != shapes[1]:
        raise wrong_kind(
            "the two models have another number of layers or heads",
            hint="choose two checkpoints of one run, or two models of one size",
        )
    if a.logits.shape != b.logits.shape:
        raise wrong_kind("the two models do not choose among the same tokens or classes")
    differences = {part: b.maps[part] - a.maps[part] for part in a.maps}
    main = next(iter(differences))
    logs = [side.logits.log_softmax(-1) for side in (a, b)]
    kl = (logs[0].exp() * (logs[0] - logs[1])).sum(-1).clamp(min=0) / math.log(2)
    tokens = a.target if a.target is not None else a.ids
    return {
        "tokens": token_display.tokens(a.opened.subject, a.ids),
        "output_tokens": token_display.tokens(a.opened.subject, tokens),
        "parts": list(differences),
        "diff_thumbs": {part: arrays.small(each) for part, each in differences.items()},
        "head_max": {
            part: arrays.floats(each.abs().amax((-2, -1))) for part, each in differences.items()
        },
        "kl": arrays.floats(kl.reshape(-1)),
        "max_abs": arrays.number(float(differences[main].abs().max())),
        "max_logit": arrays.number(float((a.logits - b.logits).abs().max())),
    }
