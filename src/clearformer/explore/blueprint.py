"""The plan of a model: embedding, blocks with their steps, head, each with its shapes.

The home page draws it, and `flow` adds the numbers that a text produces at each step. The plan is
read from the config and from a model without weights, so that it needs no checkpoint.

Axes: T tokens, E model width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from clearformer.builder import outline
from clearformer.config import AnyModelConfig
from clearformer.core.attention import Attention
from clearformer.core.embedding import Embedding
from clearformer.core.patterns import Pattern
from clearformer.explore import arrays, norms, token_display, views
from clearformer.explore.limits import MAX_RESPONSE_BYTES
from clearformer.explore.model_info import POSITIONS, main_task
from clearformer.explore.module_calls import Calls, last_calls
from clearformer.explore.norms import embedding_of, norm_kind, norm_of
from clearformer.explore.recording import AnyTransformer, blocks
from clearformer.explore.trace_cache import CachedTrace

SHOWN_COMPONENTS = 16  # of each vector: the picture is small
STAGES = ("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out")
# The order of the steps around each sublayer.
ORDER = {"pre": ("norm", "part", "add"), "post": ("part", "add", "norm")}

Step = dict[str, Any]


# --- the plan ------------------------------------------------------------------------------


def blueprint(config: AnyModelConfig) -> dict[str, Any]:
    """The plan of a model with this config."""
    model = outline(config)
    return {
        "family": config.family or config.name,
        "residual": config.residual,
        "width": config.width,
        "memory": config.memory,
        "length": config.length,
        "stacks": [
            {
                "part": part,
                "embedding": _embedding(config, embedding_of(model, part)),
                "blocks": [
                    {"layer": layer, "steps": block_steps(config, part, layer, block)}
                    for which, layer, block in blocks(model)
                    if which == part
                ],
                "norm": norm_kind(stack.norm),
            }
            for part, stack in model.stacks.items()
        ],
        "head": _head(config, model),
    }


def block_steps(config: AnyModelConfig, part: str, layer: int, block: nn.Module) -> list[Step]:
    """The steps of a block in the order of the computation."""
    sublayers: list[tuple[str, Step]] = [
        ("attention", _attention(config, part, layer, block.get_submodule("attention")))
    ]
    if "cross_attention" in dict(block.named_children()):
        cross = _attention(config, "cross", layer, block.get_submodule("cross_attention"))
        sublayers.append(("cross", cross))
    sublayers.append(("mlp", _feed_forward(config, block.get_submodule("feed_forward"))))
    steps: list[Step] = []
    for which, sublayer in sublayers:
        norm = {"kind": "norm", "which": which, "norm": norm_kind(norm_of(block, which))}
        each = {"norm": norm, "part": sublayer, "add": {"kind": "add", "which": which}}
        steps += [each[name] for name in ORDER[config.residual]]
    return steps


def _attention(config: AnyModelConfig, part: str, layer: int, module: nn.Module) -> Step:
    assert isinstance(module, Attention)
    pattern: str | None = None
    if part in ("self", "decoder"):
        pattern = pattern_name(config.patterns[layer % len(config.patterns)])
    return {
        "kind": "attention",
        "part": part,
        "heads": module.heads,
        "key_heads": module.key_heads,
        "head_width": module.head_width,
        "pattern": pattern,
    }


def pattern_name(pattern: Pattern) -> str:
    """A pattern in words, such as "causal & local 4"."""
    fields = list(vars(pattern).values())
    if any(isinstance(each, Pattern) for each in fields):
        sign = {"Both": " & ", "Either": " | ", "Without": " - "}.get(type(pattern).__name__, ", ")
        return sign.join(pattern_name(each) for each in fields)
    name = type(pattern).__name__.lower()
    return " ".join([name, *(str(each) for each in fields if isinstance(each, int))])


def _feed_forward(config: AnyModelConfig, module: nn.Module) -> Step:
    up, down = module.get_submodule("up"), module.get_submodule("down")
    assert isinstance(up, nn.Linear)
    assert isinstance(down, nn.Linear)
    name = config.activation
    return {
        "kind": "mlp",
        "hidden": down.in_features,
        "gated": up.out_features == 2 * down.in_features,
        "activation": name if isinstance(name, str) else type(name).__name__,
    }


def _embedding(config: AnyModelConfig, module: Embedding) -> dict[str, Any]:
    position = type(config.position).__name__
    added = config.position.added(torch.arange(1), config.width, module.position) is not None
    return {
        "shape": list(module.token.weight.shape),
        "position": POSITIONS.get(position, position.lower()),
        "added": added,  # to the vectors, or applied inside attention
        "pairs": None if config.neighbours is None else config.neighbours.buckets,
        "segments": None if module.segment is None else module.segment.num_embeddings,
        "norm": norm_kind(module.norm),
    }


def _head(config: AnyModelConfig, model: AnyTransformer) -> dict[str, Any]:
    task = main_task(config)
    outputs = len(config.head.names or ()) or getattr(config.head, "classes", None)
    tied = getattr(config.head, "tied", False)
    return {
        "task": task,
        "outputs": outputs if task == "classify" else config.vocabulary if task != "embed" else 0,
        "tied": bool(tied) or task == "translate",
    }


# --- the numbers ---------------------------------------------------------------------------


def flow(cached: CachedTrace) -> dict[str, Any]:
    """Some components of the vectors of every token after every step, and the predictions."""
    model, config = cached.loaded.model, cached.loaded.config
    modules = norms.norms(model.module)
    modules |= {(part, -1, "final"): stack.norm for part, stack in model.module.stacks.items()}
    with last_calls(modules) as calls:
        trace = cached.all_layers(STAGES)
    shown = _shown_components(cached, len(modules))

    def strips(tensor: Tensor) -> dict[str, Any]:
        return arrays.floats(tensor[0, :, :shown])

    stacks = []
    for part in model.module.stacks:
        summed = calls.inputs.get((part, -1, "embedding"))
        steps = [
            _step_outputs(config.residual, trace.recorded, calls, part, layer)
            for layer in trace.layers(part)
        ]
        stacks.append({
            "part": part,
            "tokens": token_display.tokens(model, trace.input.queries(part)),
            "summed": None if summed is None else strips(summed),  # before the embedding's norm
            "embedding": strips(trace.recorded[part, 0]["resid_pre"]),
            "blocks": [[strips(each) for each in outputs] for outputs in steps],
            "norm": strips(calls.outputs[part, -1, "final"]),
        })  # fmt: skip
    return {"components": shown, "stacks": stacks, "predictions": _predictions(cached)}


def _step_outputs(
    residual: str, recorded: Any, calls: Calls[tuple[str, int, str]], part: str, layer: int
) -> list[Tensor]:
    """The output of each step of a block, in the order of `block_steps`: each (1, T, E)."""
    own, cross = recorded[part, layer], recorded.get(("cross", layer), {})
    sublayers = [("attention", own["attn_out"], own["resid_mid"])]
    if (part, layer, "cross") in calls.outputs:
        sublayers.append(("cross", cross["attn_out"], cross["resid_mid"]))
    sublayers.append(("mlp", own["mlp_out"], own["resid_post"]))
    outputs = []
    for which, output, after in sublayers:
        normalized = calls.outputs[part, layer, which]
        # Pre-norm: the sum leaves the sublayer. Post-norm: the norm's input is the sum.
        total = after if residual == "pre" else calls.inputs[part, layer, which]
        each = {"norm": normalized, "part": output, "add": total}
        outputs += [each[name] for name in ORDER[residual]]
    return outputs


def _shown_components(cached: CachedTrace, norms: int) -> int:
    """So many that the response stays below half of the limit."""
    tokens = max(len(cached.overview.input.queries(part)) for part in cached.overview.parts)
    room = MAX_RESPONSE_BYTES // 2 // (tokens * 3 * norms * 6)  # 4 bytes, and base64
    return max(1, min(SHOWN_COMPONENTS, cached.loaded.config.width, room))


def _predictions(cached: CachedTrace) -> list[dict[str, Any]] | None:
    """The most likely token after, or at, each position, or the classes; None without a head."""
    config, logits = cached.loaded.config, cached.overview.logits.float().cpu()
    task = main_task(config)
    if task == "embed":
        return None
    if task == "classify":
        classes = views.class_probabilities(config, logits)
        return [{"display": each["label"], "p": each["p"]} for each in classes]
    best = logits.softmax(-1).max(-1)  # (T,)
    items = token_display.vocabulary_items(cached.loaded.model, best.indices.tolist())
    return [
        {"id": item["id"], "display": item["display"], "p": arrays.number(p)}
        for item, p in zip(items, best.values.tolist(), strict=True)
    ]
