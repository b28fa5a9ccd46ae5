"""What pages show of a trace: answers made of its tensors, one function for each.

Axes: L layers, H heads, Q queries, K keys, D head width, E model width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.config import Head
from clearformer.core.attention import Attention
from clearformer.explore import arrays, stages, token_display
from clearformer.explore.errors import Problem, bad_field, unknown
from clearformer.explore.limits import LARGEST_RESPONSE, POOLED_FROM, TOP_TOKENS
from clearformer.explore.recording import attentions
from clearformer.explore.trace import Trace
from clearformer.explore.trace_cache import Kept

SCORES = ("scores_raw", "scores_scaled", "bias", "scores_masked", "weights")


# --- all layers at a glance ----------------------------------------------------------------


def overview(kept: Kept) -> dict[str, Any]:
    """The answer to a new trace: tokens, and every head as a small picture."""
    found, opened = kept.overview, kept.opened
    given, parts = found.input, found.parts
    by_part = {part: _layers(found, part) for part in parts}
    tokens = {part: token_display.tokens(found.subject, given.queries(part)) for part in parts}
    keys = {
        part: token_display.tokens(found.subject, given.keys(part), first=-given.remembered)
        for part in parts
    }
    main, everything = parts[0], given.tokens[0].tolist()
    answer: dict[str, Any] = {
        "id": kept.id,
        "model": opened.entry.id,
        "checkpoint": opened.checkpoint,
        "family": opened.config.family or opened.config.name,
        "tokens": tokens[main],
        "target_tokens": tokens.get("decoder"),
        "sentences": None if given.segments is None else given.segments[0].tolist(),
        "text_tokens": token_display.tokens(found.subject, everything) if given.start else None,
        "query_tokens": tokens,
        "key_tokens": keys,
        "parts": [
            {"part": part, "n_layers": len(layers), "rows": len(tokens[part]),
             "cols": len(keys[part])}
            for part, layers in by_part.items()
        ],
        "n_layers": len(by_part[main]),
        "n_heads": opened.config.heads,
        "memory": given.remembered,
        "thumbs": _thumbs(by_part),
        "shapes": shapes(found),
        "bits": _bits(found),
        "probs": _probabilities(found),
        "nonfinite": nonfinite(kept),
        "truncated": False,
        "settings": dict(found.settings),
    }  # fmt: skip
    for name in ("entropy", "previous", "first"):
        answer[name] = {
            part: arrays.floats(torch.stack([layer[name][0] for layer in layers]))
            for part, layers in by_part.items()
        }
    return answer


def _layers(found: Trace, part: str) -> list[Mapping[str, Tensor]]:
    return [stages for (own, _), stages in found.recorded.items() if own == part]


def _thumbs(by_part: Mapping[str, list[Mapping[str, Tensor]]]) -> dict[str, Any]:
    """One byte a cell; the side is halved until all of them fit into an answer."""
    maps = {
        part: torch.stack([layer["thumbs"][0] for layer in layers])
        for part, layers in by_part.items()
    }  # each (L, H, t, t)
    side = stages.THUMB
    while sum(table.numel() for table in maps.values()) > LARGEST_RESPONSE // 2 and side > 4:
        side //= 2
        maps = {part: stages.pooled(table, side) for part, table in maps.items()}
    return {part: arrays.small(table) for part, table in maps.items()}


def shapes(found: Trace) -> list[dict[str, Any]]:
    """The shape of every stage of the first layer of each part, then of the output."""
    rows = []
    for (part, layer), own in found.shapes.items():
        if layer == 0:
            rows += [
                {"part": part, "stage": stage, "axes": axes, "shape": list(own[stage])}
                for stage, axes in stages.AXES.items()
                if stage in own and stage not in stages.REDUCED
            ]
    axes = "T,V" if found.logits.dim() == 2 else "C"
    last = {"part": found.parts[-1], "stage": "logits", "axes": axes}
    return [*rows, {**last, "shape": list(found.logits.shape)}]


def nonfinite(kept: Kept) -> list[dict[str, Any]]:
    """Where there are NaN and infinities: in the parameters, then in what was computed."""
    rows = []
    for place, counts in kept.opened.not_finite.items():
        part, layer = (None, None) if place is None else place
        rows.append(_counted(part, layer, "parameters", counts))
    for (part, layer), found in kept.overview.not_finite.items():
        rows += [
            _counted(part, layer, stage, found[stage]) for stage in stages.AXES if stage in found
        ]
    return rows


def _counted(
    part: str | None, layer: int | None, stage: str, counts: tuple[int, int]
) -> dict[str, Any]:
    nan, inf = counts
    place = {"part": part, "layer": layer, "stage": stage}
    return {**place, "count": nan + inf, "nan": nan, "inf": inf}


def _bits(found: Trace) -> dict[str, Any] | None:
    """How surprising each token was to what came before it, in bits; NaN for the first."""
    config = found.subject.config
    if config is None or config.verbs[0] not in ("generate", "translate"):
        return None
    if found.settings["mask"] == "none":
        return None  # every token was seen before it was guessed
    part = config.writing_part
    ids = torch.tensor(found.input.queries(part))
    logs = found.logits.float().cpu().log_softmax(-1)  # (T, V)
    surprise = -logs[:-1].gather(1, ids[1:, None])[:, 0] / math.log(2)
    return arrays.floats(torch.cat((torch.tensor([math.nan]), surprise)))


def _probabilities(found: Trace) -> list[dict[str, Any]] | None:
    config = found.subject.config
    if config is None or "classify" not in config.verbs:
        return None
    shares = found.logits.float().softmax(-1).tolist()
    return [
        {"label": name, "p": arrays.number(share)}
        for name, share in zip(label_names(config.head), shares, strict=True)
    ]


def label_names(head: Head) -> tuple[str, ...]:
    return head.names or tuple(str(number) for number in range(head.classes))


# --- one head ------------------------------------------------------------------------------


def place(kept: Kept, layer: int, head: int, part: str | None) -> str:
    """The part that was asked for, once part, layer and head are known to exist."""
    found = kept.overview
    part = part or found.parts[0]
    if part not in found.parts:
        raise unknown("part", part)
    layers = sum(own == part for own, _ in found.recorded)
    for name, value, count in (
        ("layer", layer, layers),
        ("head", head, kept.opened.config.heads),
    ):
        if not 0 <= value < count:
            raise bad_field(name, f"{name} is {value}, but there are {name}s 0 to {count - 1}")
    return part


def attention(kept: Kept, layer: int, head: int, stage: str, part: str | None) -> dict[str, Any]:
    """One stage of one head, whole; of a very long text, the largest of each four cells."""
    part = place(kept, layer, head, part)
    found = kept.layer(layer).recorded[part, layer]
    if stage not in found:
        raise Problem(
            409,
            "no_stage",
            f"this model has no {stage}: its positions add nothing to the scores",
        )
    table = found[stage][0, head]  # (Q, K)
    size = 2 if max(table.shape) > POOLED_FROM else 1
    shown = F.max_pool2d(table[None, None], size, ceil_mode=True)[0, 0]
    low, high = limits(table)
    return {
        "rows": table.shape[0],
        "cols": table.shape[1],
        "pooled": size,
        "values": arrays.floats(shown),
        "min": low,
        "max": high,
    }


def limits(table: Tensor) -> tuple[float, float]:
    """The least and the largest finite number: the ends of a legend."""
    finite = table[table.isfinite()]
    return (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 0.0)


def query(kept: Kept, layer: int, head: int, i: int, part: str | None) -> dict[str, Any]:
    """The whole ladder of one query."""
    part = place(kept, layer, head, part)
    found = {name: each[0] for name, each in kept.layer(layer).recorded[part, layer].items()}
    i = index(i, found["q"].shape[1])
    q, k, v = found["q"][head, i], found["k"][head], found["v"][head]  # (D,), (K, D), (K, D)
    shares = found["weights"][head, i]  # (K,)
    answer: dict[str, Any] = {
        "i": i,
        "q": arrays.floats(q),
        "k": arrays.floats(k),
        "products": arrays.floats(q * k),
        "v": arrays.floats(v),
        "contributions": arrays.floats(shares[:, None] * v),
        "output": arrays.floats(found["head_out"][head, i]),
        "scale": math.sqrt(q.shape[-1]),
        "group": group(kept, layer, head, part),
        "bias": None,
        "q_proj": arrays.floats(found["q_proj"][head, i]),
        "k_proj": arrays.floats(found["k_proj"][head]),
    }
    for stage in SCORES:
        if stage in found:
            answer[stage] = arrays.floats(found[stage][head, i])
    return answer


def whole_head(kept: Kept, layer: int, head: int, part: str | None) -> dict[str, Any]:
    """All queries of one head at once: what a page needs that cannot ask again."""
    part = place(kept, layer, head, part)
    found = {name: each[0, head] for name, each in kept.layer(layer).recorded[part, layer].items()
             if stages.AXES[name].startswith("H")}  # fmt: skip
    wanted = ("q", "k", "v", "head_out", "q_proj", "k_proj", *SCORES)
    total = sum(found[name].numel() for name in wanted if name in found) * 4 * 4 // 3
    if total > LARGEST_RESPONSE:
        raise Problem(
            413,
            "too_big",
            f"all queries of a head take {total:,} bytes, limit {LARGEST_RESPONSE:,}",
            hint="ask for one query",
            limit=LARGEST_RESPONSE,
        )
    answer = {name: arrays.floats(found[name]) for name in wanted if name in found}
    answer["output"] = answer.pop("head_out")
    scale = math.sqrt(found["q"].shape[-1])
    return {"bias": None, **answer, "scale": scale, "group": group(kept, layer, head, part)}


def group(kept: Kept, layer: int, head: int, part: str) -> dict[str, int] | None:
    """Which key head a query head shares with its neighbours; none: it has its own."""
    own = attentions(kept.opened.subject.model)[part, layer]
    if own.key_heads == own.heads:
        return None
    return {"key_head": head // (own.heads // own.key_heads), "of": own.key_heads}


def projection(
    kept: Kept, layer: int, head: int, i: int, which: str, d: int, part: str | None
) -> dict[str, Any]:
    """x·W + b for one component of a query, a key or a value."""
    part = place(kept, layer, head, part)
    traced = kept.layer(layer)
    found = traced.recorded[part, layer]
    own = attentions(kept.opened.subject.model)[part, layer]
    if not 0 <= d < own.head_width:
        raise bad_field("d", f"d is {d}, but a head has components 0 to {own.head_width - 1}")
    i = index(i, found[which].shape[2])
    x = _entered(kept, traced, layer, part, which, i)
    row = _row(own, head, which, d)
    w = own.project.weight[row].detach()
    b = 0.0 if own.project.bias is None else float(own.project.bias[row].detach())
    products = x * w
    return {
        "x": arrays.floats(x),
        "w": arrays.floats(w),
        "products": arrays.floats(products),
        "b": arrays.number(b),
        "value": arrays.number(float(products.sum()) + b),
        "turned": arrays.number(float(found[which][0, head, i, d])),
    }


def _entered(kept: Kept, traced: Trace, layer: int, part: str, which: str, i: int) -> Tensor:
    """The vector (E,) that a projection was made from."""
    found = traced.recorded[part, layer]
    if part == "cross" and which != "q":
        model = kept.opened.subject.seq2seq
        last = len(model.encoder.blocks) - 1
        states = kept.layer(last).recorded["encoder", last]["resid_post"]
        with torch.inference_mode():
            return model.encoder.norm(states)[0, i]
    own = i - traced.input.remembered if which != "q" else i
    if own < 0:
        raise Problem(
            409,
            "remembered",
            "of a remembered token only its key and its value are known here",
            hint="choose a token of the last segment",
        )
    return found["attn_in"][0, own]


def _row(own: Attention, head: int, which: str, d: int) -> int:
    """Where in the one matrix of queries, keys and values a component stands."""
    shared = head // (own.heads // own.key_heads)
    place = {"q": head, "k": own.heads + shared, "v": own.heads + own.key_heads + shared}[which]
    return place * own.head_width + d


# --- what comes out ------------------------------------------------------------------------


def logits(kept: Kept, i: int) -> dict[str, Any]:
    """Scores of the whole vocabulary at one place, the largest taken away from all."""
    found = kept.overview
    table = found.logits.float().cpu()
    config = kept.opened.config
    if config.verbs[0] == "embed":
        raise Problem(409, "wrong_kind", "this model gives no scores of tokens or classes")
    if "classify" in config.verbs:
        names = label_names(config.head)
        values = table - table.max()
        order = values.argsort(descending=True, stable=True).tolist()
        top = [{"id": id, "text": names[id], "display": names[id]} for id in order]
        return {"i": 0, "values": arrays.floats(values), "top": top}
    i = index(i, table.shape[0])
    values = table[i] - table[i].max()
    order = values.argsort(descending=True, stable=True)[:TOP_TOKENS].tolist()
    return {
        "i": i,
        "values": arrays.floats(values),
        "top": token_display.words(kept.opened.subject, order),
    }


def index(i: int, count: int) -> int:
    """A place among so many; -1 is the last."""
    if not -count <= i < count:
        raise bad_field("i", f"i is {i}, but there are tokens 0 to {count - 1}")
    return i % count
