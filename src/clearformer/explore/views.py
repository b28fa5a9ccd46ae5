"""JSON views of a cached trace, one function for each request of the page.

Axes: L layers, H heads, Q queries, K keys, D head width, E model width, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.config import AnyModelConfig, Head
from clearformer.core.attention import Attention
from clearformer.explore import arrays, stages, token_display
from clearformer.explore.limits import MAX_RESPONSE_BYTES, POOL_ABOVE, TOP_TOKENS
from clearformer.explore.model_info import main_task, position_kind
from clearformer.explore.recording import attentions
from clearformer.explore.trace import Trace
from clearformer.explore.trace_cache import CachedTrace
from clearformer.http_server.errors import Problem, bad_field, require_index, too_big, unknown
from clearformer.tasks.registry import target_of

SCORES = ("scores_raw", "scores_scaled", "bias", "scores_masked", "weights")
KEY_STAGES = ("k", "v", "k_proj")  # with a row for each key; the others have one for each query
HEAD_STAGES = ("q", "q_proj", "head_out", *KEY_STAGES, *SCORES)


# --- overview of all layers ----------------------------------------------------------------


def overview(cached: CachedTrace) -> dict[str, Any]:
    """The response to a new trace: tokens, and a thumbnail of every head."""
    trace, loaded = cached.overview, cached.loaded
    model, model_input, parts = trace.model, trace.input, trace.parts
    # A model with a memory reads the last segment: its tokens keep their positions in the text.
    start = model_input.start
    queries = {
        part: token_display.tokens(model, model_input.queries(part), start) for part in parts
    }
    keys = {
        part: token_display.tokens(model, model_input.keys(part), start - model_input.remembered)
        for part in parts
    }
    main, all_ids = parts[0], model_input.tokens[0].tolist()
    bits = _surprisal(trace)
    response: dict[str, Any] = {
        "id": cached.id,
        "model": loaded.entry.id,
        "checkpoint": loaded.checkpoint,
        "family": loaded.config.family or loaded.config.name,
        "tokens": queries[main],
        "target_tokens": queries.get("decoder"),
        "sentences": None if model_input.segments is None else model_input.segments[0].tolist(),
        "text_tokens": token_display.tokens(model, all_ids) if model_input.start else None,
        "query_tokens": queries,
        "key_tokens": keys,
        "parts": [
            {"part": part, "n_layers": len(trace.layers(part)), "rows": len(queries[part]),
             "cols": len(keys[part])}
            for part in parts
        ],
        "n_layers": len(trace.layers(main)),
        "n_heads": loaded.config.heads,
        "memory": model_input.remembered,
        "thumbs": _thumbnails(trace),
        "shapes": shapes(trace),
        "bits": bits,
        "characters": None if bits is None else _characters(trace),
        "mask_id": None if model.tokenizer is None else model.tokenizer.mask,
        "probs": _class_probabilities(trace),
        "nonfinite": nonfinite(cached),
        "truncated": False,
        "settings": dict(trace.settings),
    }  # fmt: skip
    for name in ("entropy", "previous", "first"):
        response[name] = {part: arrays.floats(trace.stacked(name, part)) for part in parts}
    return response


def _thumbnails(trace: Trace) -> dict[str, Any]:
    """One byte for each pixel; the side is halved until all of them fit into a response."""
    maps = {part: trace.stacked("thumbs", part) for part in trace.parts}  # each (L, H, t, t)
    side = stages.THUMBNAIL_SIDE
    while sum(table.numel() for table in maps.values()) > MAX_RESPONSE_BYTES // 2 and side > 4:
        side //= 2
        maps = {part: stages.downscaled(table, side) for part, table in maps.items()}
    return {part: arrays.small(table) for part, table in maps.items()}


def shapes(trace: Trace) -> list[dict[str, Any]]:
    """The shape of every stage in the first layer of each part, then of the logits."""
    rows: list[dict[str, Any]] = [
        {"part": part, "stage": stage, "axes": axes, "shape": list(shapes[stage])}
        for (part, layer), shapes in trace.shapes.items()
        for stage, axes in stages.AXES.items()
        if layer == 0 and stage in shapes and stage not in stages.SUMMARIES
    ]
    axes = "T,V" if trace.logits.dim() == 2 else "C"
    logits = {"part": trace.parts[-1], "stage": "logits", "axes": axes}
    return [*rows, {**logits, "shape": list(trace.logits.shape)}]


def nonfinite(cached: CachedTrace) -> list[dict[str, Any]]:
    """Where NaN and infinities are: in the parameters, then in the recorded stages."""
    counts: list[tuple[str | None, int | None, str, tuple[int, int]]] = [
        (*(key or (None, None)), "parameters", each)
        for key, each in cached.loaded.nonfinite.items()
    ]
    for (part, layer), by_stage in cached.overview.nonfinite.items():
        counts += [(part, layer, name, by_stage[name]) for name in stages.AXES if name in by_stage]
    return [
        {"part": part, "layer": layer, "stage": stage, "count": nan + inf, "nan": nan, "inf": inf}
        for part, layer, stage, (nan, inf) in counts
    ]


def _surprisal(trace: Trace) -> dict[str, Any] | None:
    """The surprisal of each token given those before it, in bits; NaN for the first."""
    config = trace.model.config
    if config is None or config.verbs[0] not in ("generate", "translate"):
        return None
    if trace.settings["mask"] == "none":
        return None  # each prediction has seen its token
    part = config.writing_part
    ids = torch.tensor(trace.input.queries(part))
    log_probs = trace.logits.float().cpu().log_softmax(-1)  # (T, V)
    bits = -log_probs[:-1].gather(1, ids[1:, None])[:, 0] / math.log(2)
    return arrays.floats(torch.cat((torch.tensor([math.nan]), bits)))


def _characters(trace: Trace) -> int:
    """How many characters the tokens with a surprisal are."""
    config = trace.model.config
    assert config is not None
    return token_display.characters(trace.model, trace.input.queries(config.writing_part))


def _class_probabilities(trace: Trace) -> list[dict[str, Any]] | None:
    config = trace.model.config
    if config is None or "classify" not in config.verbs:
        return None
    return class_probabilities(config, trace.logits)


def class_probabilities(config: AnyModelConfig, logits: Tensor) -> list[dict[str, Any]]:
    """Each class with its probability, from logits (C,)."""
    probabilities = target_of(config).outputs(logits.float()).tolist()
    return [
        {"label": name, "p": arrays.number(p)}
        for name, p in zip(label_names(config.head), probabilities, strict=True)
    ]


def label_names(head: Head) -> tuple[str, ...]:
    return head.names or tuple(str(number) for number in range(head.classes))


# --- one head ------------------------------------------------------------------------------


def require_head(cached: CachedTrace, layer: int, head: int, part: str | None) -> str:
    """The requested part, once part, layer and head are known to exist."""
    trace = cached.overview
    part = part or trace.parts[0]
    if part not in trace.parts:
        raise unknown("part", part)
    require_index("layer", layer, len(trace.layers(part)))
    require_index("head", head, cached.loaded.config.heads)
    return part


def attention(
    cached: CachedTrace, layer: int, head: int, stage: str, part: str | None
) -> dict[str, Any]:
    """One stage of one head; a very long text is max-pooled to half its size."""
    part = require_head(cached, layer, head, part)
    recorded = cached.layer(layer).recorded[part, layer]
    if stage not in recorded:
        raise Problem(
            409, "no_stage", f"this model has no {stage}: its positions do not change the scores"
        )
    table = recorded[stage][0, head]  # (Q, K)
    size = 2 if max(table.shape) > POOL_ABOVE else 1
    low, high = finite_range(table)
    return {
        "rows": table.shape[0],
        "cols": table.shape[1],
        "pooled": size,
        "values": arrays.floats(F.max_pool2d(table[None, None], size, ceil_mode=True)[0, 0]),
        "min": low,
        "max": high,
    }


def finite_range(table: Tensor) -> tuple[float, float]:
    """The smallest and the largest finite value."""
    finite = table[table.isfinite()]
    return (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 0.0)


def query(cached: CachedTrace, layer: int, head: int, i: int, part: str | None) -> dict[str, Any]:
    """Every stage of one query."""
    part = require_head(cached, layer, head, part)
    tensors = _head_stages(cached, layer, head, part)
    i = token_index(i, len(tensors["q"]))
    rows = {name: each if name in KEY_STAGES else each[i] for name, each in tensors.items()}
    return {
        **_head_json(cached, layer, head, part, rows),
        "i": i,
        "products": arrays.floats(rows["q"] * rows["k"]),
        "contributions": arrays.floats(rows["weights"][:, None] * rows["v"]),
    }


def whole_head(cached: CachedTrace, layer: int, head: int, part: str | None) -> dict[str, Any]:
    """All queries of one head, for an exported page."""
    part = require_head(cached, layer, head, part)
    tensors = _head_stages(cached, layer, head, part)
    total = sum(each.numel() for each in tensors.values()) * 4 * 4 // 3  # float32 in base64
    if total > MAX_RESPONSE_BYTES:
        raise too_big(
            f"all queries of a head take {total:,} bytes, limit {MAX_RESPONSE_BYTES:,}",
            MAX_RESPONSE_BYTES,
            hint="request one query",
        )
    return _head_json(cached, layer, head, part, tensors)


def _head_stages(cached: CachedTrace, layer: int, head: int, part: str) -> dict[str, Tensor]:
    """The stages of one head, each with a row for each query or key."""
    recorded = cached.layer(layer).recorded[part, layer]
    return {name: recorded[name][0, head] for name in HEAD_STAGES if name in recorded}


def _head_json(
    cached: CachedTrace, layer: int, head: int, part: str, tensors: dict[str, Tensor]
) -> dict[str, Any]:
    response = {name: arrays.floats(each) for name, each in tensors.items()}
    response["output"] = response.pop("head_out")
    scale = math.sqrt(tensors["q"].shape[-1])
    return {"bias": None, **response, "scale": scale, "group": group(cached, layer, head, part)}


def group(cached: CachedTrace, layer: int, head: int, part: str) -> dict[str, int] | None:
    """The key head that a query head shares with its neighbours; None if it has its own."""
    attention = attentions(cached.loaded.model.module)[part, layer]
    if attention.key_heads == attention.heads:
        return None
    return {"key_head": _key_head(attention, head), "of": attention.key_heads}


def _key_head(attention: Attention, head: int) -> int:
    return head // (attention.heads // attention.key_heads)


def projection(
    cached: CachedTrace, layer: int, head: int, i: int, which: str, d: int, part: str | None
) -> dict[str, Any]:
    """x·W + b for one component of a query, a key or a value."""
    part = require_head(cached, layer, head, part)
    recorded = cached.layer(layer).recorded[part, layer]
    attention = attentions(cached.loaded.model.module)[part, layer]
    require_index("d", d, attention.head_width)
    i = token_index(i, recorded[which].shape[2])
    x = _projection_input(cached, layer, part, which, i)
    row = _projection_row(attention, head, which, d)
    w, bias = attention.project.weight[row].detach(), attention.project.bias
    b = 0.0 if bias is None else float(bias[row].detach())
    products = x * w
    return {
        "x": arrays.floats(x),
        "w": arrays.floats(w),
        "products": arrays.floats(products),
        "b": arrays.number(b),
        "value": arrays.number(float(products.sum()) + b),
        "turned": arrays.number(float(recorded[which][0, head, i, d])),
        "changed_by": _changes(cached, which),
    }


def _changes(cached: CachedTrace, which: str) -> list[str]:
    """What changes a projected query, key or value before it is used."""
    config = cached.loaded.config
    norm = ["norm"] if config.query_key_norm is not None and which != "v" else []
    by_positions = {"rotary": {"q": "rotation", "k": "rotation"}, "relative": {"q": "content_bias"}}
    change = by_positions.get(position_kind(config), {}).get(which)
    return norm if change is None else [*norm, change]


def _projection_input(cached: CachedTrace, layer: int, part: str, which: str, i: int) -> Tensor:
    """The vector (E,) that was projected."""
    trace = cached.layer(layer)
    if part == "cross" and which != "q":
        module = cached.loaded.model.seq2seq
        last = len(module.encoder.blocks) - 1
        states = cached.layer(last).recorded["encoder", last]["resid_post"]
        with torch.inference_mode():
            return module.encoder.norm(states)[0, i]
    position = i if which == "q" else i - trace.input.remembered
    if position < 0:
        raise Problem(
            409,
            "remembered",
            "only the key and the value of a remembered token are known",
            hint="choose a token of the last segment",
        )
    return trace.recorded[part, layer]["attn_in"][0, position]


def _projection_row(attention: Attention, head: int, which: str, d: int) -> int:
    """The row of a component in the joint matrix of queries, keys and values."""
    key_head = _key_head(attention, head)
    keys, values = attention.heads, attention.heads + attention.key_heads
    first = {"q": head, "k": keys + key_head, "v": values + key_head}[which]
    return first * attention.head_width + d


# --- output --------------------------------------------------------------------------------


def logits(cached: CachedTrace, i: int) -> dict[str, Any]:
    """The logits at one position, shifted so that the largest is 0."""
    table, head = cached.overview.logits.float().cpu(), cached.loaded.config.head
    verbs = cached.loaded.config.verbs
    if main_task(cached.loaded.config) == "embed":
        raise Problem(409, "wrong_kind", "this model has no logits of tokens or classes")
    is_classifier = "classify" in verbs
    i = 0 if is_classifier else token_index(i, table.shape[0])
    row = table if is_classifier else table[i]
    values = row - row.max()
    order = values.argsort(descending=True, stable=True).tolist()
    if is_classifier:
        names = label_names(head)
        top = [{"id": id, "text": names[id], "display": names[id]} for id in order]
    else:
        top = token_display.vocabulary_items(cached.loaded.model, order[:TOP_TOKENS])
    return {"i": i, "values": arrays.floats(values), "top": top}


def token_index(i: int, count: int) -> int:
    """An index from 0 to `count` - 1; a negative one counts from the end."""
    if not -count <= i < count:
        raise bad_field("i", f"i is {i}, but there are tokens 0 to {count - 1}")
    return i % count
