"""The arithmetic of one norm at one token: mean, variance, scale, shift.

Axes: T tokens, E model width.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.core.embedding import Embedding
from clearformer.explore import arrays
from clearformer.explore.module_calls import last_calls
from clearformer.explore.recording import AnyTransformer, blocks
from clearformer.explore.trace_cache import CachedTrace
from clearformer.explore.views import token_index
from clearformer.http_server.errors import Problem, require_index

NORMS = {"attention": "attention_norm", "cross": "cross_attention_norm", "mlp": "feed_forward_norm"}
EMBEDDINGS = {"self": "embedding", "encoder": "source_embedding", "decoder": "target_embedding"}


def norm_kind(module: nn.Module) -> str | None:
    """ "layer", "rms", "other" for one of your own; None if there is no norm."""
    match module:
        case nn.Identity():
            return None
        case nn.LayerNorm():
            return "layer"
        case nn.RMSNorm():
            return "rms"
        case _:
            return "other"


def norm_of(block: nn.Module, which: str) -> nn.Module:
    """The norm of a sublayer: attention, cross or mlp."""
    return block.get_submodule(NORMS[which])


def embedding_of(model: AnyTransformer, part: str) -> Embedding:
    """The embedding before a stack."""
    module = model.get_submodule(EMBEDDINGS[part])
    assert isinstance(module, Embedding)
    return module


def norms(model: AnyTransformer) -> dict[tuple[str, int, str], nn.Module]:
    """Every norm of a model by part, layer and place; those outside the layers have layer -1."""
    found: dict[tuple[str, int, str], nn.Module] = {}
    for part, layer, block in blocks(model):
        for which, name in NORMS.items():
            if name in dict(block.named_children()):
                found[part, layer, which] = norm_of(block, which)
    for part, stack in model.stacks.items():
        found[part, -1, "embedding"] = embedding_of(model, part).norm
        found[part, -1, "final"] = stack.norm
    return {place: module for place, module in found.items() if norm_kind(module) is not None}


def norm(cached: CachedTrace, layer: int, i: int, which: str, part: str | None) -> dict[str, Any]:
    """A norm's input, every step of its arithmetic, and its output at one token."""
    module = _require_norm(cached, layer, which, part)
    with last_calls({which: module}) as calls:
        cached.all_layers(())
    rows, outputs = calls.inputs[which][0].float(), calls.outputs[which][0].float()  # (T, E)
    i = token_index(i, len(rows))
    return {"layer": layer, "i": i, "which": which, "kind": norm_kind(module),
            **arithmetic(module, rows[i]), "output": arrays.floats(outputs[i])}  # fmt: skip


@torch.inference_mode()
def arithmetic(module: nn.Module, x: Tensor) -> dict[str, Any]:
    """The steps from x (E,) to the output; a norm of your own shows its input alone."""
    if norm_kind(module) == "other":
        return {"x": arrays.floats(x)}
    weight, bias = (getattr(module, name, None) for name in ("weight", "bias"))
    epsilon = getattr(module, "eps", None) or torch.finfo(torch.float32).eps
    # Float64, so that what is displayed is the formula and not the order of a sum.
    exact = x.double().cpu()
    mean = float(exact.mean()) if norm_kind(module) == "layer" else 0.0
    centred = exact - mean
    variance = float(centred.square().mean())
    root = math.sqrt(variance + epsilon)
    normalized = centred / root
    return {
        "x": arrays.floats(x),
        "mean": arrays.number(mean),
        "variance": arrays.number(variance),
        "epsilon": epsilon,
        "root": arrays.number(root),
        "centred": arrays.floats(centred),
        "normalized": arrays.floats(normalized),
        "weight": None if weight is None else arrays.floats(weight),
        "bias": None if bias is None else arrays.floats(bias),
    }


def _require_norm(cached: CachedTrace, layer: int, which: str, part: str | None) -> nn.Module:
    found = norms(cached.loaded.model.module)
    there = dict.fromkeys(place for _, _, place in found)
    if which not in there:
        raise Problem(404, "no_norm", f"this model has no {which} norm: it has {', '.join(there)}")
    part = require_stack(cached, "decoder" if which == "cross" else part)
    inside = which in NORMS
    if inside:
        require_index("layer", layer, len(cached.loaded.model.module.stacks[part].blocks))
    return found[part, layer if inside else -1, which]


def require_stack(cached: CachedTrace, part: str | None) -> str:
    """The requested stack, or the first one."""
    stacks = cached.loaded.model.module.stacks
    part = part or next(iter(stacks))
    if part not in stacks:
        there = ", ".join(stacks)
        raise Problem(404, "unknown_part", f"there is no stack {part!r}: there is {there}")
    return part
