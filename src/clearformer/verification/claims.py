"""Claims: whether a model is meant to be causal, and the evidence for it.

A check compares a model with its own claim. Without a claim nothing is reported as wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.verification.signature import config_of
from clearformer.verification.trace import Trace

KINDS = (
    "causal-lm",
    "masked-lm",
    "encoder",
    "seq2seq",
    "classifier",
    "attention",
    "causal-attention",
    "causal-stack",
)
CAUSAL_KINDS = ("causal-lm", "causal-attention", "causal-stack")
BOTH_WAYS_KINDS = ("masked-lm", "encoder", "classifier")
FLAGS = (
    "causal",
    "is_causal",
    "masked",
    "mask",
    "autoregressive",
    "is_decoder",
    "use_causal_mask",
    "causal_mask",
    "decoder_only",
)
CAUSAL_NAME = re.compile(
    r"causal|gpt|languagemodel|lmhead|autoregress|decoderonly|masked(self|multi|head|att)"
    r"|generator|nanollm|lm$|llm|charmodel|textgen|decoderlm|llama|bigram"
)
BOTH_WAYS_NAME = re.compile(
    r"bert|encoder|maskedlm|formaskedlm|-mlm-|classif|bidirectional|crossatt|-set-|graph|-vi-?t-"
    r"|seq2seq|translat"
)
PREFIX_NAME = re.compile(r"(n_?|num_?)?prefix(_?(len(gth)?|size|tokens))?")
WINDOW_NAME = re.compile(r"(sliding|local|attention|attn|context)?_?window(_size)?|band(width)?")
SPARSE_NAME = re.compile(
    r"window|local|sliding|stride|sparse|chunk|block_length|dilat|band|bucket|lsh|attn_type|"
    r"attention_type|lookback|look_back|memory|mem_len|segment|compress|retention|attend_to"
)


@dataclass(frozen=True)
class Claim:
    """Whether a model claims to be causal; None: it claims nothing."""

    causal: bool | None
    reason: str
    window: int | None = None  # keys that a query may see, itself included
    sparse: str | None = None  # why not every pair need be connected
    prefix: int = 0  # so many first tokens may be seen by all


def claim_of(
    model: nn.Module, trace: Trace | None, kind: str | None, translates: bool = False
) -> Claim:
    """What the model claims, from `--as`, its config, attributes, masks and name."""
    causal, reason = _causal(model, trace, kind)
    if translates and kind is None:
        causal, reason = True, "the decoder of an encoder-decoder predicts the next token"
    prefix = _prefix(model)
    if prefix is None and "prefix" in type(model).__name__.lower() and kind is None:
        causal, reason = None, "its class is called a prefix model, and no setting says how long"
    return Claim(causal, reason, _window(model), _sparse(model, trace), prefix or 0)


def _words(name: str) -> str:
    """The words of a class name: GraphSetLM is -graph-set-lm-graphsetlm."""
    parts = re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+", name)
    return f"-{'-'.join(parts)}-{''.join(parts)}".lower()


def _prefix(model: nn.Module) -> int | None:
    """How many first tokens see each other both ways, if the model names it."""
    for name, value in _settings(model):
        if re.fullmatch(PREFIX_NAME, name) and type(value) is int and value > 0:
            return value
    return None


def _causal(model: nn.Module, trace: Trace | None, kind: str | None) -> tuple[bool | None, str]:
    if kind in CAUSAL_KINDS:
        return True, f"you said {kind}"
    if kind in BOTH_WAYS_KINDS:
        return False, f"you said {kind}"
    name = _words(type(model).__name__)
    config = config_of(model)
    if config.get("attn_type") == "bi":
        return None, "its config says attn_type='bi'"
    if re.search("maskedlm|-mlm-", name) and config.get("is_decoder") is not True:
        return False, f"its class is called {type(model).__name__}"
    if (found := _flag(model, config)) is not None:
        return found
    if BOTH_WAYS_NAME.search(name) and not CAUSAL_NAME.search(name):
        return False, f"its class is called {type(model).__name__}"
    for flag in FLAGS:
        if getattr(model, flag, None) is False:
            return None, f"{flag} is False"
    if CAUSAL_NAME.search(name):
        return True, f"its class is called {type(model).__name__}"
    if trace is not None and (line := triangle_seen(trace)) is not None:
        return True, f"it uses a triangular mask ({line})"
    if (buffer := _triangular_buffer(model)) is not None:
        return True, f"it keeps a triangular mask ({buffer})"
    for part in model.modules():
        for flag in FLAGS:
            if getattr(part, flag, None) is True:
                return True, f"{type(part).__name__}.{flag} is True"
    for name, value in _settings(model):
        kinds = value if isinstance(value, tuple | list) else (value,)
        if any(type(each).__name__ == "Causal" for each in kinds):
            return True, f"its {name} is Causal"
    if callable(getattr(type(model), "generate", None)):
        return True, "it has a method generate"
    return None, "nothing says whether it is causal"


def _flag(model: nn.Module, config: dict[str, Any]) -> tuple[bool | None, str] | None:
    """An explicit claim of the model or its config."""
    if config.get("is_encoder_decoder"):
        return None
    if config.get("is_decoder") is True:
        return True, "its config says is_decoder"
    name = type(model).__name__.lower()
    if config.get("is_decoder") is False and CAUSAL_NAME.search(name) and "bert" in name:
        return None, "its config says is_decoder=False"
    for flag in FLAGS:
        if getattr(model, flag, None) is True:
            return True, f"{flag} is True"
    if config.get("causal") is False:
        return None, "its config says causal=False"
    if config.get("is_causal") is False or config.get("use_bidirectional_attention") is True:
        return None, "its config says that it looks both ways"
    return None


def triangle_seen(trace: Trace) -> str | None:
    """The line where a lower triangle was made or used as a mask."""
    for op in trace.ops:
        if op.name == "scaled_dot_product_attention" and op.argument(5, "is_causal", False):
            return op.place.line
        if op.name in ("tril", "triu", "tril_indices", "triu_indices"):
            return op.place.line
        if op.name in ("masked_fill", "where", "scaled_dot_product_attention"):
            for mask in op.tensors:
                if mask.dtype is torch.bool and is_triangle(mask):
                    return op.place.line
    return None


def is_triangle(mask: Tensor) -> bool:
    """Whether a mask (..., T, T) is a lower triangle, or the complement of one."""
    if mask.dim() < 2 or mask.shape[-1] != mask.shape[-2] or mask.shape[-1] < 3 or mask.is_meta:
        return False
    table = mask.reshape(-1, *mask.shape[-2:])[0]
    hidden = ~table.bool() if table.dtype is torch.bool or table.min() >= 0 else table < 0
    size = table.shape[-1]
    above = torch.ones(size, size, dtype=torch.bool).triu(1)
    return any(bool((each.cpu() == above).all()) for each in (hidden, ~hidden))


def _triangular_buffer(model: nn.Module) -> str | None:
    for name, buffer in model.named_buffers():
        if buffer.dim() >= 2 and buffer.numel() <= 1 << 22 and is_triangle(buffer):
            return name
    return None


def _settings(model: nn.Module) -> Iterator[tuple[str, Any]]:
    yield from config_of(model).items()
    for part in model.modules():
        for name, value in vars(part).items():
            if not name.startswith("_"):
                yield name, value


def _window(model: nn.Module) -> int | None:
    """A window that the model names, the smallest of several."""
    found = [
        value
        for name, value in _settings(model)
        if re.fullmatch(WINDOW_NAME, name) and type(value) is int and value > 0
    ]
    return min(found, default=None)


def _sparse(model: nn.Module, trace: Trace | None) -> str | None:
    for name, value in _settings(model):
        plain = isinstance(value, str | int | float | tuple | list) and bool(value)
        if plain and SPARSE_NAME.search(name) and value not in ("full", "full_attention"):
            return f"{name} is set"
    return None
