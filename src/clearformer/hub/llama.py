"""Llama, Mistral, Qwen2 and Qwen3: names and settings of the `modern` family."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearformer import limits
from clearformer.config import (
    AnswerSpan,
    Biases,
    Both,
    Causal,
    Dropout,
    Features,
    GenerationDefaults,
    KVCache,
    LinearScaling,
    Llama3Scaling,
    Local,
    ModelConfig,
    NextToken,
    Pattern,
    RMSNorm,
    Rotary,
    TokenClassifier,
)
from clearformer.core.positions import Scaling
from clearformer.hub import eos_tokens, generation_defaults, heads
from clearformer.hub.family import Family
from clearformer.hub.hf_config import SIZE_KEYS, HFConfig, norm_epsilon, write_sizes
from clearformer.hub.tensor_names import GATE_UP, QKV, Rename, qkv_rows

OURS, THEIRS = "stack.blocks.{}.", "model.layers.{}."
SELF = THEIRS + "self_attn."

RENAMES = (
    Rename("embedding.token.weight", "model.embed_tokens.weight"),
    Rename(OURS + "attention_norm.weight", THEIRS + "input_layernorm.weight"),
    Rename(
        OURS + "attention.project.{}",
        (SELF + "q_proj.{}", SELF + "k_proj.{}", SELF + "v_proj.{}"),
        QKV,
    ),
    Rename(OURS + "attention.query_norm.weight", SELF + "q_norm.weight"),
    Rename(OURS + "attention.key_norm.weight", SELF + "k_norm.weight"),
    Rename(OURS + "attention.output.{}", SELF + "o_proj.{}"),
    Rename(OURS + "feed_forward_norm.weight", THEIRS + "post_attention_layernorm.weight"),
    Rename(
        OURS + "feed_forward.up.{}",
        (THEIRS + "mlp.gate_proj.{}", THEIRS + "mlp.up_proj.{}"),
        GATE_UP,
    ),
    Rename(OURS + "feed_forward.down.{}", THEIRS + "mlp.down_proj.{}"),
    Rename("stack.norm.weight", "model.norm.weight"),
)
CLASSES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
SCALINGS = {name: name for name in ("default", "linear", "llama3")}  # of rotary positions
DEFAULT_EOS = {"llama": (2,), "mistral": (2,)}  # if config.json does not name one
DEFAULT_HEAD_DIM = {"qwen3": 128}  # width of a head, if config.json does not give it
IGNORED_KEYS = {
    "is_decoder",  # true or not, a Llama is one
    "pretraining_tp",  # splits a product into parts
}
FULL, SLIDING = "full_attention", "sliding_attention"
WINDOW, FIRST_WINDOW = 4096, 28  # defaults: tokens, and the first layer with a window


def read_config(settings: HFConfig, names: Collection[str]) -> ModelConfig:
    kind = settings.get("model_type")
    sizes = settings.sizes(SIZE_KEYS)
    width, count = sizes["width"], sizes["heads"]
    default = DEFAULT_HEAD_DIM.get(kind, max(1, width // count))
    head_width = settings.integer("head_dim", limits.MAX_WIDTH, default)
    settings.require("is_causal", True)
    settings.require("attention_chunk_size")
    settings.require("hidden_act", "silu", "swish")
    norm = RMSNorm(epsilon=settings.number("rms_norm_eps", 1e-6))
    # For the others, the reference does not read this key.
    biased = kind in ("llama", "qwen3") and settings.boolean("attention_bias", False)
    generator = NextToken(tied=settings.boolean("tie_word_embeddings", False))
    config = ModelConfig(
        name="modern",
        family="modern",
        **sizes,
        key_heads=settings.integer("num_key_value_heads", count, count),
        head_width=None if head_width * count == width else head_width,
        residual="pre",
        activation="swiglu",
        position=_rotary(settings),
        patterns=_patterns(settings, kind, sizes["layers"], sizes["length"]),
        head=heads.decoder_head(
            settings,
            names,
            generator,
            f"{CLASSES[kind]}Model",
            settings.boolean("token_classification_bias", True),
        ),
        cache=KVCache(),
        norm=norm,
        query_key_norm=norm if kind == "qwen3" else None,
        biases=Biases(
            attention=biased or kind == "qwen2",
            attention_output=biased,
            feed_forward=kind == "llama" and settings.boolean("mlp_bias", False),
        ),
        dropout=Dropout(attention=settings.number("attention_dropout", 0.0)),
        init="modern",
    )
    settings.finish(IGNORED_KEYS)
    return config


def read_generation(settings: HFConfig, config: ModelConfig) -> GenerationDefaults:
    default = DEFAULT_EOS.get(settings.get("model_type"), ())
    return eos_tokens.read_generation(settings, config, default)


def _rotary(settings: HFConfig) -> Rotary:
    """The base and its scaling, from the keys of older or newer files."""
    base = settings.number("rope_theta", 10_000.0, 1.0, 1e12)
    rotary_settings: list[tuple[float, LinearScaling | Llama3Scaling | None]] = []
    for name in ("rope_scaling", "rope_parameters"):
        section = settings.get(name)
        if section is None:
            continue
        inner = HFConfig(
            section if isinstance(section, dict) else {name: section}, f"{settings.where}: {name}"
        )
        inner.require("partial_rotary_factor", 1.0)
        rotary_settings.append((inner.number("rope_theta", base, 1.0, 1e12), _scaling(inner)))
        for key, value in inner.data.items():
            if key not in inner.asked and value is not None:
                settings.refuse(
                    f"{name}.{key}", value, "clearformer computes default, linear and llama3"
                )
    settings.require("partial_rotary_factor", 1.0)
    if len(set(rotary_settings)) > 1:
        section = settings.get("rope_scaling")
        settings.refuse("rope_scaling", section, "rope_parameters says something else: keep one")
    base, scaling = rotary_settings[0] if rotary_settings else (base, None)
    return Rotary(base=base, scaling=scaling)


def _scaling(inner: HFConfig) -> LinearScaling | Llama3Scaling | None:
    older = inner.choice("type", SCALINGS, "default")
    kind = inner.choice("rope_type", SCALINGS, older)
    if kind == "default":
        return None
    factor = inner.number("factor", 0.0, 1.0, 1e6)
    if kind == "linear":
        return LinearScaling(factor=factor)
    low = inner.number("low_freq_factor", 0.0, 1e-6, 1e6)
    high = inner.number("high_freq_factor", 0.0, 1e-6, 1e6)
    if high <= low:
        inner.refuse("high_freq_factor", high, f"it must be above low_freq_factor, {low}")
    length = inner.integer("original_max_position_embeddings", limits.MAX_LENGTH)
    return Llama3Scaling(factor=factor, low=low, high=high, length=length)


def _patterns(settings: HFConfig, kind: str, layers: int, length: int) -> tuple[Pattern, ...]:
    """The pattern of every layer: causal, or a causal window. Defaults differ by model type."""
    window = settings.data.get("sliding_window", WINDOW if kind != "llama" else None)
    if kind == "llama":
        settings.require("sliding_window")
        settings.require("use_sliding_window", False)
    elif kind != "mistral" and not settings.boolean("use_sliding_window", False):
        window = None
    settings.get("sliding_window")
    if window is not None and (type(window) is not int or window < 1):
        settings.refuse("sliding_window", window, "it must be a whole number from 1 on")
    slides = _sliding(settings, kind, layers, window is not None)
    windowed = Causal() if window is None or window >= length else Causal() & Local(window=window)
    patterns = tuple(windowed if each else Causal() for each in slides)
    return patterns[:1] if len(set(patterns)) == 1 else patterns


def _sliding(settings: HFConfig, kind: str, layers: int, windowed: bool) -> list[bool]:
    """Which layers have a window: listed one by one, or all from a certain layer on."""
    first = settings.get("max_window_layers")
    types = settings.get("layer_types")
    if kind in ("llama", "mistral"):
        if types is not None and types != [SLIDING if windowed else FULL] * layers:
            settings.refuse("layer_types", types, f"a {kind} has one kind of attention in all")
        return [windowed] * layers
    if types is None:
        first = FIRST_WINDOW if first is None else first
        if type(first) is not int or first < 0:
            settings.refuse("max_window_layers", first, "it must be a whole number from 0 on")
        return [windowed and layer >= first for layer in range(layers)]
    allowed = (FULL, SLIDING) if windowed else (FULL,)
    if not isinstance(types, list) or len(types) != layers or any(t not in allowed for t in types):
        settings.refuse("layer_types", types, f"it must be {layers} times {' or '.join(allowed)}")
    return [each == SLIDING for each in types]


def write_config(config: ModelConfig) -> dict[str, Any]:
    window = _window(config)
    kind = "llama"
    if config.query_key_norm is not None:
        kind = "qwen3"
    elif config.biases.attention and not config.biases.attention_output:
        kind = "qwen2"
    elif window is not None:
        kind = "mistral"
    settings: dict[str, Any] = {
        "model_type": kind,
        "architectures": [_class(config, kind)],
        **write_sizes(config, SIZE_KEYS),
        "num_key_value_heads": config.key_heads or config.heads,
        "head_dim": config.resolved_head_width,
        "hidden_act": "silu",
        "rms_norm_eps": norm_epsilon(config.norm),
        "attention_dropout": config.dropout.attention,
        "tie_word_embeddings": isinstance(config.head, NextToken) and config.head.tied,
        **heads.write_classes(config.head),
    }
    if isinstance(config.head, TokenClassifier) and not config.head.bias:
        settings["token_classification_bias"] = False
    if isinstance(config.position, Rotary):
        # The first for current readers, the second for older ones.
        base = config.position.base
        settings["rope_parameters"] = {
            "rope_theta": base,
            **_write_scaling(config.position.scaling),
        }
        settings["rope_theta"] = base
    if kind in ("llama", "qwen3"):
        settings["attention_bias"] = config.biases.attention
    if kind == "llama":
        settings["mlp_bias"] = config.biases.feed_forward
    if kind == "mistral":
        settings["sliding_window"] = window
    elif window is not None:
        slides = [_local(each) is not None for each in _by_layer(config)]
        settings |= {
            "use_sliding_window": True,
            "sliding_window": window,
            "max_window_layers": slides.index(True),
            "layer_types": [SLIDING if each else FULL for each in slides],
        }
    return settings


def _class(config: ModelConfig, kind: str) -> str:
    """The class that opens it. Classes for question answering name the body differently, so they
    are read but not written: as a body alone, the model does not fit.
    """
    head = Features() if isinstance(config.head, AnswerSpan) else config.head
    return heads.decoder_architecture(head, CLASSES[kind], "ForCausalLM")


def _write_scaling(scaling: Scaling | None) -> dict[str, Any]:
    match scaling:
        case LinearScaling(factor=factor):
            return {"rope_type": "linear", "factor": factor}
        case Llama3Scaling(factor=factor, low=low, high=high, length=length):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": low,
                "high_freq_factor": high,
                "original_max_position_embeddings": length,
            }
        case None:
            return {"rope_type": "default"}
        case _:
            raise ValueError(f"position.scaling is {scaling}, which config.json cannot express")


def _by_layer(config: ModelConfig) -> list[Pattern]:
    return [config.patterns[layer % len(config.patterns)] for layer in range(config.layers)]


def _window(config: ModelConfig) -> int | None:
    """The first window of any layer; None if no layer has one."""
    return next((window for each in _by_layer(config) if (window := _local(each))), None)


def _local(pattern: Pattern) -> int | None:
    match pattern:
        case Both(first=Causal(), second=Local(window=window)):
            return window
        case _:
            return None


def in_halves(
    config: ModelConfig, tensors: Mapping[str, Tensor]
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """The same model with rotary pairs in halves, as Hugging Face expects them: the components of
    each head are reordered, in queries and keys alike.
    """
    position, reordered = config.position, dict(tensors)
    if not isinstance(position, Rotary) or position.pairs == "halves":
        return config, reordered
    width = config.resolved_head_width
    order = torch.cat((torch.arange(0, width, 2), torch.arange(1, width, 2)))
    for name, tensor in tensors.items():
        if ".attention.project." in name:
            q, k, v = tensor.split(qkv_rows(config))
            q, k = (x.unflatten(0, (-1, width))[:, order].flatten(0, 1) for x in (q, k))
            reordered[name] = torch.cat((q, k, v))
        elif name.endswith((".query_norm.weight", ".key_norm.weight")):
            reordered[name] = tensor[order]
    return replace(config, position=replace(position, pairs="halves")), reordered


LLAMA = Family(
    name="modern",
    model_types=tuple(CLASSES),
    prefix="model.",
    renames=lambda config: RENAMES + heads.decoder_renames(config.head, "score"),
    read_config=read_config,
    write_config=write_config,
    read_generation=read_generation,
    write_generation=eos_tokens.write_generation,
    heads=r"lm_head\.|score\.|qa_outputs\.",
    buffers=r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",
    unused=r"lm_head\.weight|score\..*|qa_outputs\..*",
    old_prefix="transformer.",  # of Llama's and Qwen's classes for answers
    merge_files=eos_tokens.merge_files,
    notes=generation_defaults.notes,
    to_family_form=in_halves,
)
