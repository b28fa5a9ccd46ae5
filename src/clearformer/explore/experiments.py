"""Two experiments: replace a token, or permute the tokens, and compare the outputs.

Axes: T tokens, E model width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from clearformer.explore import arrays, token_display
from clearformer.explore.inputs import input_ids, permuted, replacement_token
from clearformer.explore.library import LoadedModel
from clearformer.explore.limits import Limits
from clearformer.explore.recording import MaskChoice
from clearformer.explore.requests import PermuteRequest, ProbeRequest
from clearformer.explore.trace import trace
from clearformer.explore.views import token_index


def probe(loaded: LoadedModel, request: ProbeRequest, limits: Limits) -> dict[str, Any]:
    """Replace one token: how much does the output at each position change?"""
    before = input_ids(loaded, request.text, None, limits)
    i = token_index(request.edit.i, len(before))
    after = list(before)
    after[i] = replacement_token(loaded.model, request.edit.text, before[i])
    outputs = [
        hidden_states(loaded, ids, request.mask, True)[1] for ids in (before, after)
    ]  # each (T, E)
    delta = (outputs[1] - outputs[0]).abs().amax(-1)  # (T,)
    return {
        "tokens": token_display.tokens(loaded.model, before),
        "edited_tokens": token_display.tokens(loaded.model, after),
        "i": i,
        "delta": arrays.floats(delta),
        "max_before": arrays.number(float(delta[:i].max()) if i else 0.0),
        "max_after": arrays.number(float(delta[i:].max())),
    }


def permute(loaded: LoadedModel, request: PermuteRequest, limits: Limits) -> dict[str, Any]:
    """Permute the tokens: are the outputs permuted in the same way? f(Px) against P f(x)."""
    ids, order = input_ids(loaded, request.text, None, limits), request.permutation
    settings = request.mask, request.positions
    inputs, outputs = hidden_states(loaded, ids, *settings)
    _, permuted_outputs = hidden_states(loaded, permuted(ids, order), *settings)
    error = (permuted_outputs - outputs[order]).abs().max()
    return {
        "tokens": token_display.tokens(loaded.model, ids),
        "permutation": order,
        "inputs": arrays.floats(inputs),
        "outputs": arrays.floats(outputs),
        "permuted_outputs": arrays.floats(permuted_outputs),
        "max_error": arrays.number(float(error)),
    }


def hidden_states(
    loaded: LoadedModel, ids: Sequence[int], mask: MaskChoice, positions: bool
) -> tuple[Tensor, Tensor]:
    """The input of the first block and the output of the last: each (T, E)."""
    row = torch.tensor([list(ids)])
    last = loaded.config.layers - 1
    traced = trace(
        loaded.model,
        (row, row) if "translate" in loaded.config.verbs else row,
        ("resid_pre", "resid_post"),
        layers=[0, last],
        mask=mask,
        positions=positions,
        # One segment and no memory, so that all tokens are in view.
        segment=len(ids),
        memory=None if loaded.config.memory is None else 0,
    )
    stages = traced.recorded
    part = traced.parts[0]
    return (
        stages[part, 0]["resid_pre"][0].float().cpu(),
        stages[part, last]["resid_post"][0].float().cpu(),
    )
