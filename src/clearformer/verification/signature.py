"""Signatures: what the parameters of a forward pass are for, by their names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

# Role of a parameter: the first pattern that matches its whole name.
ROLES = (
    ("labels", r"labels?|targets?|target_ids|next_tokens"),
    ("return_loss", r"return_loss|compute_loss|with_loss|calc_loss"),
    ("positions", r"position_ids|positions?|pos|pos_ids|cache_position|input_pos"),
    ("start", r"start_pos|start|offset|start_position|past_length|seq_offset"),
    ("source_mask", r"(src|source|memory|encoder|context|enc)_(key_padding_|attention_|padding_)?mask|e_mask"),
    ("target_padding", r"(tgt|trg|target|decoder)_(key_padding|attention|padding)_mask"),
    ("padding", r"attention_mask|(key_)?padding_mask|pad_mask|key_padding_mask|input_mask|token_mask"),
    ("pair_mask", r"((tgt|trg|target|attn|causal|self_attn|look_ahead|lookahead|d|x)_)?mask"),
    ("use_cache", r"use_cache|return_cache|cached|return_kv"),
    ("cache", r"past|past_key_values?|layer_past|past_kv|.*cache|caches|kv|mems|memories|past_states?|state"),
    ("target", r"(tgt|trg|target|decoder|dec)(_(input_ids|inputs?|tokens?|ids|seq|words?|text))?|y|outputs|prev_output_tokens|shifted_outputs"),
    ("context", r"memory|context|encoder_(hidden_states|outputs?|states)|enc_outputs?|cross|encoded|kv_input|x_kv|source_states"),
    ("key", r"k|keys?|key_states|K"),
    ("value", r"v|values?|value_states|V"),
    ("stream", r"x|input_ids|inputs?|idx|ids|tokens?|token_ids|hidden_states|hidden|q|quer(y|ies)|(src|source|enc|encoder)(_(input_ids|inputs?|tokens?|ids|seq|words?|text))?|seq|sequence|embeddings?|embeds?|Q|inp|queries|images?|pixels|pixel_values|in_(idx|indices|ids)|indices|text|data"),
)  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """One parameter of a forward pass."""

    name: str
    role: str
    required: bool
    default: Any = None


def role_of(name: str) -> str:
    for role, pattern in ROLES:
        if re.fullmatch(pattern, name):
            return role
    return "other"


def parameters_of(function: Callable[..., Any]) -> list[Parameter]:
    """The parameters that can be passed by name."""
    found = []
    for each in inspect.signature(function).parameters.values():
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            continue
        empty = each.default is each.empty
        default = None if empty else each.default
        found.append(Parameter(each.name, role_of(each.name), empty, default))
    return found


def required_arguments(cls: type) -> list[str]:
    """What a class cannot be built without."""
    try:
        return [each.name for each in parameters_of(cls) if each.required]
    except (TypeError, ValueError):
        return []


def config_of(module: nn.Module) -> dict[str, Any]:
    """The settings of a model's config, if it has one."""
    config = getattr(module, "config", None)
    if config is None:
        return {}
    if hasattr(config, "to_dict"):
        found = config.to_dict()
        return found if isinstance(found, dict) else {}
    return dict(vars(config)) if hasattr(config, "__dict__") else {}
