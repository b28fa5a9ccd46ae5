"""A trace computed again with changes: heads off, attention weights set, values of another text.

Axes: T tokens, V vocabulary, C classes.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.explore import arrays, inputs, token_display
from clearformer.explore.edit_requests import EditRequest, PatchedText
from clearformer.explore.limits import Limits
from clearformer.explore.model_info import main_task
from clearformer.explore.trace import Trace, trace
from clearformer.explore.trace_cache import CachedTrace
from clearformer.explore.views import label_names, token_index
from clearformer.http_server.errors import bad_field, wrong_kind
from clearformer.interventions import Edit, attention, edit, head, mlp, point

TOP = 6  # the most likely tokens, before and after each


def edited(cached: CachedTrace, request: EditRequest, limits: Limits) -> dict[str, Any]:
    """The output with and without the changes: probabilities at one position, and the loss."""
    loaded = cached.loaded
    if main_task(loaded.config) == "embed":
        raise wrong_kind("this model has no logits of tokens or classes")
    other = None if request.patch is None else _other_text(cached, request.patch, limits)
    try:
        with _edit(cached, request, other):
            after = trace(loaded.model, cached.tokens, (), **cached.settings)
    except ValueError as problem:
        raise bad_field("edit", str(problem)) from None
    before = cached.overview
    rows = [each.logits.float().cpu() for each in (before, after)]
    classes = "classify" in loaded.config.verbs
    i = 0 if classes else token_index(request.i, len(rows[0]))
    if not classes:
        rows = [row[i] for row in rows]
    p, q = (row.softmax(-1) for row in rows)  # each (V,) or (C,)
    losses = [_loss(cached, each) for each in (before, after)]
    known = [arrays.number(float(each)) for each in losses if each is not None]
    tokens = None
    if other is not None:
        tokens = token_display.tokens(loaded.model, other.input.queries(other.parts[0]))
    return {
        "i": i,
        "loss": known or None,
        "top": _top(cached, p, q, classes),
        "moved": arrays.number(float((p - q).abs().sum() / 2)),
        "tokens": tokens,
    }


def _edit(cached: CachedTrace, request: EditRequest, other: Trace | None) -> Edit:
    module = cached.loaded.model.module
    off = [head(each.layer, each.head, each.part) for each in request.heads_off]
    off += [mlp(each.layer, each.part) for each in request.mlps_off]
    cells = {
        attention(each.layer, each.head, each.part)[each.i, each.j]: each.weight
        for each in request.weights
    }
    patched = {}
    if request.patch is not None and other is not None:
        where = request.patch
        place = point(where.stage, where.layer, where.head, where.part)
        patched[place if where.i is None else place.at(where.i)] = other
    return edit(module, zero=off, weights=cells, replace=patched)


def _other_text(cached: CachedTrace, patch: PatchedText, limits: Limits) -> Trace:
    """The trace of the other text, of the layer and stage that is put in."""
    loaded = cached.loaded
    ids: Any = inputs.input_ids(loaded, patch.text, None, limits)
    if isinstance(cached.tokens, tuple):
        ids = (ids, cached.tokens[1])  # the decoder reads the same
    try:
        return trace(loaded.model, ids, (patch.stage,), layers=[patch.layer], **cached.settings)
    except ValueError as problem:
        raise bad_field("patch", str(problem)) from None


def _loss(cached: CachedTrace, found: Trace) -> Tensor | None:
    """The mean cross-entropy of the next tokens in nats; None if the model predicts none."""
    config, given = cached.loaded.config, found.input
    if not {"generate", "translate"} & set(config.verbs):
        return None
    ids = torch.tensor(given.queries(config.writing_part))
    mask = given.attention_mask if given.target is None else given.target_attention_mask
    count = len(ids) if mask is None else int(mask.sum())
    if count < 2:
        return None
    logits = found.logits.float().cpu()[: count - 1]
    return F.cross_entropy(logits, ids[1:count])


def _top(cached: CachedTrace, p: Tensor, q: Tensor, classes: bool) -> list[dict[str, Any]]:
    """The likeliest outputs of both, with both probabilities."""
    ids: list[int] = list(range(len(p)))
    if not classes:
        likeliest = [each.topk(min(TOP, len(each))).indices.tolist() for each in (p, q)]
        ids = list(dict.fromkeys(likeliest[0] + likeliest[1]))
    ids.sort(key=lambda id: -max(float(p[id]), float(q[id])))
    if classes:
        names = label_names(cached.loaded.config.head)
        items = [{"id": id, "text": names[id], "display": names[id]} for id in ids]
    else:
        items = token_display.vocabulary_items(cached.loaded.model, ids)
    return [
        {**item, "before": arrays.number(float(p[id])), "after": arrays.number(float(q[id]))}
        for id, item in zip(ids, items, strict=True)
    ]
