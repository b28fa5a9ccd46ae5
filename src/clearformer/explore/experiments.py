"""Two small experiments: change a word and see who notices; shuffle the words and see who cares.

Axes: T tokens, E model width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from clearformer.explore import arrays, token_display
from clearformer.explore.inputs import one_token, own_ids, permuted
from clearformer.explore.library import Opened
from clearformer.explore.limits import Limits
from clearformer.explore.recording import MaskChoice
from clearformer.explore.trace import Trace, trace
from clearformer.explore.views import index


def probe(
    opened: Opened, text: str, i: int, new: str, mask: MaskChoice, limits: Limits
) -> dict[str, Any]:
    """Change one token: by how much does the output of each place move?"""
    before = own_ids(opened, text, None, limits)
    i = index(i, len(before))
    after = list(before)
    after[i] = one_token(opened.subject, new, before[i])
    outputs = [
        states(opened, each, mask=mask, positions=True)[1] for each in (before, after)
    ]  # each (T, E)
    delta = (outputs[1] - outputs[0]).abs().amax(-1)  # (T,)
    return {
        "tokens": token_display.tokens(opened.subject, before),
        "edited_tokens": token_display.tokens(opened.subject, after),
        "i": i,
        "delta": arrays.floats(delta),
        "max_before": arrays.number(float(delta[:i].max()) if i else 0.0),
        "max_after": arrays.number(float(delta[i:].max())),
    }


def permute(
    opened: Opened,
    text: str,
    order: Sequence[int],
    positions: bool,
    mask: MaskChoice,
    limits: Limits,
) -> dict[str, Any]:
    """Shuffle the tokens: do the outputs move along with them? f(Px) against P f(x)."""
    straight = own_ids(opened, text, None, limits)
    shuffled = permuted(straight, order)
    inputs, outputs = states(opened, straight, mask=mask, positions=positions)
    _, moved = states(opened, shuffled, mask=mask, positions=positions)
    error = (moved - outputs[list(order)]).abs().max()
    return {
        "tokens": token_display.tokens(opened.subject, straight),
        "permutation": list(order),
        "inputs": arrays.floats(inputs),
        "outputs": arrays.floats(outputs),
        "permuted_outputs": arrays.floats(moved),
        "max_error": arrays.number(float(error)),
    }


def states(
    opened: Opened, ids: Sequence[int], *, mask: MaskChoice, positions: bool
) -> tuple[Tensor, Tensor]:
    """What enters the first block and what leaves the last: each (T, E)."""
    layers = opened.config.layers
    found = trace(
        opened.subject,
        _one_sequence(opened, ids),
        ("resid_pre", "resid_post"),
        layers=[0, layers - 1],
        mask=mask,
        positions=positions,
        # In one segment, and nothing remembered: all tokens are before our eyes.
        segment=len(ids),
        memory=None if opened.config.memory is None else 0,
    )
    part = found.parts[0]
    return _stage(found, part, 0, "resid_pre"), _stage(found, part, layers - 1, "resid_post")


def _one_sequence(opened: Opened, ids: Sequence[int]) -> Any:
    row = torch.tensor([list(ids)])
    return (row, row) if "translate" in opened.config.verbs else row


def _stage(found: Trace, part: str, layer: int, stage: str) -> Tensor:
    return found.recorded[part, layer][stage][0].float().cpu()
