"""The residual stream through the layers, and the logit lens.

The residual stream starts as the embedding, and every sublayer adds to it. The logit lens
applies the final norm and the head to the stream after each layer: the tokens that the model
would predict if that layer were the last. Its last row is the model's own output.

Axes: L layers, T tokens, E model width, V vocabulary, R rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from clearformer.explore import arrays, token_display
from clearformer.explore.recording import AnyTransformer
from clearformer.explore.stages import entropy
from clearformer.explore.trace import Trace
from clearformer.explore.trace_cache import CachedTrace
from clearformer.explore.views import token_index
from clearformer.http_server.errors import Problem, bad_field, require_index, wrong_kind

STREAM = ("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out")
MAX_CELLS = 30_000  # candidates in one response


def residual(cached: CachedTrace, part: str | None) -> dict[str, Any]:
    """The norm of the stream after each sublayer, and of what each sublayer adds."""
    part = _require_part(cached, part)
    trace = cached.all_layers(STREAM)
    rows = _stream(trace, part)

    def norms(part: str, stage: str) -> dict[str, Any]:
        return arrays.floats(trace.stacked(stage, part).norm(dim=-1))  # (L, T)

    return {
        "part": part,
        "norm": cached.loaded.config.residual,
        "rows": [{"layer": layer, "stage": stage} for layer, stage, _ in rows],
        "norms": arrays.floats(torch.stack([stream.norm(dim=-1) for _, _, stream in rows])),
        "attn": norms(part, "attn_out"),
        "mlp": norms(part, "mlp_out"),
        "cross": norms("cross", "attn_out") if part == "decoder" else None,
    }


def vectors(cached: CachedTrace, layer: int, i: int, part: str | None) -> dict[str, Any]:
    """The stream at one token in one layer, and what was added to it."""
    part = _require_part(cached, part, layer)
    recorded = cached.layer(layer).recorded
    i = token_index(i, recorded[part, layer]["resid_pre"].shape[1])
    names = {"before": "resid_pre", "attn": "attn_out", "mid": "resid_mid", "mlp": "mlp_out",
             "after": "resid_post"}  # fmt: skip
    tensors = {name: recorded[part, layer][stage] for name, stage in names.items()}
    if part == "decoder":
        cross = recorded["cross", layer]
        tensors |= {"cross": cross["attn_out"], "mid_cross": cross["resid_mid"]}
    header = {"layer": layer, "i": i, "part": part, "norm": cached.loaded.config.residual}
    return {**header, **{name: arrays.floats(each[0, i]) for name, each in tensors.items()}}


def lens(cached: CachedTrace, k: int, track: int | None) -> dict[str, Any]:
    """The k most likely tokens for every layer and position, if that layer were the last."""
    model = cached.loaded.model
    part = cached.loaded.config.writing_part
    trace = cached.all_layers(("resid_pre", "resid_post"))
    streams = torch.stack([stream for _, _, stream in _stream(trace, part)])
    probabilities = unembed(model.module, streams).float().cpu().softmax(-1)  # (L+1, T, V)
    rows, positions, size = probabilities.shape
    k = max(1, min(k, size, MAX_CELLS // (rows * positions)))
    top = probabilities.topk(k)
    ids = sorted(set(top.indices.flatten().tolist()))
    items = {item["id"]: item for item in token_display.vocabulary_items(model, ids)}
    candidates = [
        {**items[id], "p": arrays.number(p)}
        for id, p in zip(top.indices.flatten().tolist(), top.values.flatten().tolist(), strict=True)
    ]
    cells = [candidates[start : start + k] for start in range(0, len(candidates), k)]
    response: dict[str, Any] = {
        "layers": rows - 1,
        "k": k,
        "tokens": [cells[row * positions : (row + 1) * positions] for row in range(rows)],
        "entropy": arrays.floats(entropy(probabilities)),
        "track": None,
    }
    if track is not None:
        if not 0 <= track < size:
            raise bad_field("track", f"there is no token {track}: ids go from 0 to {size - 1}")
        p = probabilities[..., track]  # (L+1, T)
        rank = (probabilities > p[..., None]).sum(-1)
        response["track"] = {"id": track, "p": arrays.floats(p), "rank": arrays.floats(rank)}
    return response


@torch.inference_mode()
def unembed(model: AnyTransformer, streams: Tensor) -> Tensor:
    """The final norm and the head applied to streams (R, T, E): logits (R, T, V)."""
    *_, stack = model.stacks.values()
    head = getattr(model.head, "token_head", None)
    if head is None:
        raise wrong_kind("the logit lens needs a model that predicts tokens")
    return head(stack.norm(streams.to(next(model.parameters()).device)))


def _stream(trace: Trace, part: str) -> list[tuple[int, str, Tensor]]:
    """The recorded stream from the embedding on: layer, stage, (T, E)."""
    rows = [(0, "resid_pre", trace.recorded[part, 0]["resid_pre"][0])]
    for layer in trace.layers(part):
        stages, cross = trace.recorded[part, layer], trace.recorded.get(("cross", layer), {})
        if "resid_mid" in stages:
            rows.append((layer, "resid_mid", stages["resid_mid"][0]))
        if part == "decoder" and "resid_mid" in cross:
            rows.append((layer, "resid_cross", cross["resid_mid"][0]))
        rows.append((layer, "resid_post", stages["resid_post"][0]))
    return rows


def _require_part(cached: CachedTrace, part: str | None, layer: int = 0) -> str:
    """The requested part, once it and the layer are known to exist."""
    trace = cached.overview
    parts = [each for each in trace.parts if each != "cross"]
    if part is not None and part not in parts:
        raise Problem(404, "unknown_part", f"there is no stream {part!r}: there is {parts}")
    part = part or parts[0]
    require_index("layer", layer, len(trace.layers(part)))
    return part
