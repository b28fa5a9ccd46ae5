"""The stream through the layers: what each part adds, and what it would already say.

The stream starts as the embedding and every part adds to it. The lens asks of each layer: if
this were the last one, which token would come out? It goes through the final norm and the head
for every row, so that the last row is the model's own output.

Axes: L layers, T tokens, E model width, F hidden width, V vocabulary, R rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from clearformer.explore import arrays, token_display
from clearformer.explore.errors import Problem, bad_field, wrong_kind
from clearformer.explore.stages import entropy as bits_of
from clearformer.explore.trace import Trace
from clearformer.explore.trace_cache import Kept
from clearformer.explore.views import index

STREAM = ("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out")
MOST_CELLS = 30_000  # of candidates in one answer
MOST_UNITS = 100


def residual(kept: Kept, part: str | None) -> dict[str, Any]:
    """How long the stream is at each place, and what attention and feed-forward add."""
    part = _part(kept, part)
    found = kept.all_layers(STREAM)
    rows = _stream(found, part)
    answer = {
        "part": part,
        "norm": kept.opened.config.residual,
        "rows": [{"layer": layer, "stage": stage} for layer, stage, _ in rows],
        "norms": arrays.floats(torch.stack([each.norm(dim=-1) for _, _, each in rows])),
        "attn": arrays.floats(_lengths(found, part, "attn_out")),
        "mlp": arrays.floats(_lengths(found, part, "mlp_out")),
        "cross": None,
    }
    if part == "decoder":
        answer["cross"] = arrays.floats(_lengths(found, "cross", "attn_out"))
    return answer


def vectors(kept: Kept, layer: int, i: int, part: str | None) -> dict[str, Any]:
    """The stream at one place of one layer, and what was added to it."""
    part = _part(kept, part)
    _require_layer(kept, part, layer)
    found = kept.layer(layer).recorded[part, layer]
    i = index(i, found["resid_pre"].shape[1])
    names = {"before": "resid_pre", "attn": "attn_out", "mid": "resid_mid", "mlp": "mlp_out",
             "after": "resid_post"}  # fmt: skip
    answer: dict[str, Any] = {
        name: arrays.floats(found[stage][0, i]) for name, stage in names.items()
    }
    if part == "decoder":
        cross = kept.layer(layer).recorded["cross", layer]
        answer["cross"] = arrays.floats(cross["attn_out"][0, i])
        answer["mid_cross"] = arrays.floats(cross["resid_mid"][0, i])
    return {"layer": layer, "i": i, "part": part, "norm": kept.opened.config.residual, **answer}


def lens(kept: Kept, k: int, track: int | None) -> dict[str, Any]:
    """For every layer and place the k most likely tokens, if that layer were the last."""
    part = kept.opened.config.writing_part
    found = kept.all_layers(("resid_pre", "resid_post"))
    streams = [each for _, stage, each in _stream(found, part) if stage != "resid_mid"]
    tables = read_out(kept.opened.subject.model, torch.stack(streams))  # (L+1, T, V)
    shares = tables.float().cpu().softmax(-1)
    rows, places, size = shares.shape
    k = max(1, min(k, size, MOST_CELLS // (rows * places)))
    top = shares.topk(k)
    names = {
        word["id"]: word
        for word in token_display.words(
            kept.opened.subject, sorted(set(top.indices.flatten().tolist()))
        )
    }
    answer: dict[str, Any] = {
        "layers": rows - 1,
        "k": k,
        "tokens": [
            [
                [{**names[id], "p": arrays.number(p)} for id, p in zip(ids, values, strict=True)]
                for ids, values in zip(row_ids, row_values, strict=True)
            ]
            for row_ids, row_values in zip(top.indices.tolist(), top.values.tolist(), strict=True)
        ],
        "entropy": arrays.floats(bits_of(shares)),
        "track": None,
    }
    if track is not None:
        if not 0 <= track < size:
            raise bad_field("track", f"there is no token {track}: ids go from 0 to {size - 1}")
        own = shares[..., track]  # (L+1, T)
        rank = (shares > own[..., None]).sum(-1)
        answer["track"] = {"id": track, "p": arrays.floats(own), "rank": arrays.floats(rank)}
    return answer


@torch.inference_mode()
def read_out(model: Any, streams: Tensor) -> Tensor:
    """Streams (R, T, E) as the model would read its last one: logits (R, T, V)."""
    *_, stack = model.stacks.values()
    head = getattr(model.head, "token_head", None)
    if head is None:
        raise wrong_kind("the lens shows tokens, but this model has no words to say")
    return head(stack.norm(streams.to(next(model.parameters()).device)))


def units(kept: Kept, layer: int, i: int, k: int) -> dict[str, Any]:
    """The hidden units of the feed-forward layer that one token moves most."""
    part = _part(kept, None)
    _require_layer(kept, part, layer)
    found = kept.layer(layer).recorded[part, layer]
    i = index(i, found["mlp_hidden"].shape[1])
    before, after = found["mlp_pre"][0, i], found["mlp_hidden"][0, i]  # (F,)
    order = after.abs().topk(max(1, min(k, len(after), MOST_UNITS))).indices.tolist()
    rows = [
        {"j": j, "pre": arrays.number(float(before[j])), "post": arrays.number(float(after[j]))}
        for j in order
    ]
    return {"units": rows}


def _stream(found: Trace, part: str) -> list[tuple[int, str, Tensor]]:
    """The stream from its start through every part: layer, stage, (T, E)."""
    layers = sorted(layer for own, layer in found.recorded if own == part)
    rows = [(0, "resid_pre", found.recorded[part, 0]["resid_pre"][0])]
    for layer in layers:
        own = found.recorded[part, layer]
        if "resid_mid" in own:
            rows.append((layer, "resid_mid", own["resid_mid"][0]))
        if part == "decoder" and "resid_mid" in found.recorded.get(("cross", layer), {}):
            rows.append((layer, "resid_cross", found.recorded["cross", layer]["resid_mid"][0]))
        rows.append((layer, "resid_post", own["resid_post"][0]))
    return rows


def _lengths(found: Trace, part: str, stage: str) -> Tensor:
    layers = sorted(layer for own, layer in found.recorded if own == part)
    return torch.stack([found.recorded[part, n][stage][0].norm(dim=-1) for n in layers])  # (L, T)


def _part(kept: Kept, part: str | None) -> str:
    parts = [each for each in kept.overview.parts if each != "cross"]
    if part is not None and part not in parts:
        raise Problem(404, "unknown_part", f"there is no stream {part!r}: there is {parts}")
    return part or parts[0]


def _require_layer(kept: Kept, part: str, layer: int) -> None:
    count = sum(own == part for own, _ in kept.overview.recorded)
    if not 0 <= layer < count:
        raise bad_field("layer", f"layer is {layer}, but there are layers 0 to {count - 1}")
