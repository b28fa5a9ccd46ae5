"""Llama and its relatives, which differ in a bias, a norm or a window: what `modern` is made of."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, assert_never

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
    KVCache,
    Local,
    ModelConfig,
    NextToken,
    Pattern,
    RMSNorm,
    Rotary,
    Slower,
    SlowerBelow,
    TokenClassifier,
)
from clearformer.hub import eos_tokens, generation_defaults, heads
from clearformer.hub.family import Family
from clearformer.hub.hf_config import Settings
from clearformer.hub.tensor_names import GATED, PROJECTIONS, Row, queries_keys_values

OURS, THEIRS = "stack.blocks.{}.", "model.layers.{}."
SELF = THEIRS + "self_attn."

ROWS = (
    Row("embedding.token.weight", "model.embed_tokens.weight"),
    Row(OURS + "attention_norm.weight", THEIRS + "input_layernorm.weight"),
    Row(
        OURS + "attention.project.{}",
        (SELF + "q_proj.{}", SELF + "k_proj.{}", SELF + "v_proj.{}"),
        PROJECTIONS,
    ),
    Row(OURS + "attention.query_norm.weight", SELF + "q_norm.weight"),
    Row(OURS + "attention.key_norm.weight", SELF + "k_norm.weight"),
    Row(OURS + "attention.output.{}", SELF + "o_proj.{}"),
    Row(OURS + "feed_forward_norm.weight", THEIRS + "post_attention_layernorm.weight"),
    Row(
        OURS + "feed_forward.up.{}",
        (THEIRS + "mlp.gate_proj.{}", THEIRS + "mlp.up_proj.{}"),
        GATED,
    ),
    Row(OURS + "feed_forward.down.{}", THEIRS + "mlp.down_proj.{}"),
    Row("stack.norm.weight", "model.norm.weight"),
)
CLASSES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
SCALINGS = {name: name for name in ("default", "linear", "llama3")}  # of rotary positions
ENDS = {"llama": (2,), "mistral": (2,)}  # of a text, where a config.json is silent
PER_HEAD = {"qwen3": 128}  # width of a head, where a config.json is silent
HARMLESS = {
    "is_decoder",  # true or not, a Llama is one
    "pretraining_tp",  # cuts a product into parts
}
FULL, SLIDING = "full_attention", "sliding_attention"
WINDOW, FIRST_WINDOW = 4096, 28  # tokens, and the first layer, where a config.json is silent


def read(settings: Settings, names: Collection[str]) -> ModelConfig:
    kind = settings.anything("model_type")
    width = settings.whole("hidden_size", limits.MOST_WIDTH)
    count = settings.whole("num_attention_heads", limits.MOST_HEADS)
    vocabulary = settings.whole("vocab_size", limits.MOST_VOCABULARY)
    layers = settings.whole("num_hidden_layers", limits.MOST_LAYERS)
    length = settings.whole("max_position_embeddings", limits.MOST_LENGTH)
    silent = PER_HEAD.get(kind, max(1, width // count))
    per_head = settings.whole("head_dim", limits.MOST_WIDTH, silent)
    settings.only("is_causal", True)
    settings.only("attention_chunk_size")
    settings.only("hidden_act", "silu", "swish")
    norm = RMSNorm(epsilon=settings.number("rms_norm_eps", 1e-6))
    # Of the others, the reference reads no such key.
    biased = kind in ("llama", "qwen3") and settings.flag("attention_bias", False)
    generator = NextToken(
        tied=settings.flag("tie_word_embeddings", False),
        ends=eos_tokens.read(settings, vocabulary, ENDS.get(kind, ())),
    )
    config = ModelConfig(
        name="modern",
        family="modern",
        vocabulary=vocabulary,
        length=length,
        layers=layers,
        width=width,
        heads=count,
        key_heads=settings.whole("num_key_value_heads", count, count),
        per_head=None if per_head * count == width else per_head,
        hidden=settings.whole("intermediate_size", limits.MOST_HIDDEN),
        residual="pre",
        activation="swiglu",
        position=_rotary(settings),
        patterns=_patterns(settings, kind, layers, length),
        head=heads.of_decoder(
            settings,
            names,
            generator,
            f"{CLASSES[kind]}Model",
            settings.flag("token_classification_bias", True),
        ),
        past=KVCache(),
        norm=norm,
        query_key_norm=norm if kind == "qwen3" else None,
        biases=Biases(
            attention=biased or kind == "qwen2",
            attention_output=biased,
            feed_forward=kind == "llama" and settings.flag("mlp_bias", False),
        ),
        dropout=Dropout(attention=settings.number("attention_dropout", 0.0)),
        init="modern",
    )
    settings.close(HARMLESS)
    return config


def _rotary(settings: Settings) -> Rotary:
    """The base and what scales it, from where they stand in old files or in new ones."""
    base = settings.number("rope_theta", 10_000.0, 1.0, 1e12)
    found: list[tuple[float, Slower | SlowerBelow | None]] = []
    for name in ("rope_scaling", "rope_parameters"):
        given = settings.anything(name)
        if given is None:
            continue
        inner = Settings(
            given if isinstance(given, dict) else {name: given}, f"{settings.where}: {name}"
        )
        inner.only("partial_rotary_factor", 1.0)
        found.append((inner.number("rope_theta", base, 1.0, 1e12), _scaling(inner)))
        for key, value in inner.data.items():
            if key not in inner.asked and value is not None:
                settings.refuse(
                    f"{name}.{key}", value, "clearformer computes default, linear and llama3"
                )
    settings.only("partial_rotary_factor", 1.0)
    if len(set(found)) > 1:
        given = settings.anything("rope_scaling")
        settings.refuse("rope_scaling", given, "rope_parameters says something else: keep one")
    base, scaling = found[0] if found else (base, None)
    return Rotary(base=base, scaling=scaling)


def _scaling(inner: Settings) -> Slower | SlowerBelow | None:
    older = inner.choice("type", SCALINGS, "default")
    kind = inner.choice("rope_type", SCALINGS, older)
    if kind == "default":
        return None
    factor = inner.number("factor", 0.0, 1.0, 1e6)
    if kind == "linear":
        return Slower(factor=factor)
    low = inner.number("low_freq_factor", 0.0, 1e-6, 1e6)
    high = inner.number("high_freq_factor", 0.0, 1e-6, 1e6)
    if high <= low:
        inner.refuse("high_freq_factor", high, f"it must be above low_freq_factor, {low}")
    length = inner.whole("original_max_position_embeddings", limits.MOST_LENGTH)
    return SlowerBelow(factor=factor, low=low, high=high, length=length)


def _patterns(settings: Settings, kind: str, layers: int, length: int) -> tuple[Pattern, ...]:
    """What every layer sees: all before it, or a window. The relatives differ in what holds where
    config.json is silent.
    """
    window = settings.data.get("sliding_window", WINDOW if kind != "llama" else None)
    if kind == "llama":
        settings.only("sliding_window")
        settings.only("use_sliding_window", False)
    elif kind != "mistral" and not settings.flag("use_sliding_window", False):
        window = None
    settings.anything("sliding_window")
    if window is not None and (type(window) is not int or window < 1):
        settings.refuse("sliding_window", window, "it must be a whole number from 1 on")
    slides = _sliding(settings, kind, layers, window is not None)
    near = Causal() if window is None or window >= length else Causal() & Local(window=window)
    found = tuple(near if each else Causal() for each in slides)
    return found[:1] if len(set(found)) == 1 else found


def _sliding(settings: Settings, kind: str, layers: int, windowed: bool) -> list[bool]:
    """Which layers see a window only: told one by one, or all from a certain one on."""
    first = settings.anything("max_window_layers")
    types = settings.anything("layer_types")
    if kind in ("llama", "mistral"):
        if types is not None and types != [SLIDING if windowed else FULL] * layers:
            settings.refuse("layer_types", types, f"a {kind} has one kind of attention in all")
        return [windowed] * layers
    if types is None:
        first = FIRST_WINDOW if first is None else first
        if type(first) is not int or first < 0:
            settings.refuse("max_window_layers", first, "it must be a whole number from 0 on")
        return [windowed and layer >= first for layer in range(layers)]
    known = (FULL, SLIDING) if windowed else (FULL,)
    if not isinstance(types, list) or len(types) != layers or any(t not in known for t in types):
        settings.refuse("layer_types", types, f"it must be {layers} times {' or '.join(known)}")
    return [each == SLIDING for each in types]


def write(config: ModelConfig) -> dict[str, Any]:
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
        "vocab_size": config.vocabulary,
        "max_position_embeddings": config.length,
        "num_hidden_layers": config.layers,
        "hidden_size": config.width,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.key_heads or config.heads,
        "head_dim": config.head_width,
        "intermediate_size": config.hidden,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm.epsilon,
        "attention_dropout": config.dropout.attention,
        "tie_word_embeddings": isinstance(config.head, NextToken) and config.head.tied,
        **eos_tokens.written(config),
        **heads.written_classes(config.head),
    }
    if isinstance(config.head, TokenClassifier) and not config.head.bias:
        settings["token_classification_bias"] = False
    if isinstance(config.position, Rotary):
        # The first for today's readers, the second for those of some years.
        base = config.position.base
        settings["rope_parameters"] = {"rope_theta": base, **_written(config.position.scaling)}
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
    """The class that opens it. Those for answers call the body by another name, so they are read
    and not written: named as a body alone, it is found not to fit.
    """
    head = Features() if isinstance(config.head, AnswerSpan) else config.head
    return heads.decoder_class(head, CLASSES[kind], "ForCausalLM")


def _written(scaling: Slower | SlowerBelow | None) -> dict[str, Any]:
    match scaling:
        case Slower(factor=factor):
            return {"rope_type": "linear", "factor": factor}
        case SlowerBelow(factor=factor, low=low, high=high, length=length):
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
            assert_never(scaling)


def _by_layer(config: ModelConfig) -> list[Pattern]:
    return [config.patterns[layer % len(config.patterns)] for layer in range(config.layers)]


def _window(config: ModelConfig) -> int | None:
    """The first that any layer has; none if all see everything."""
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
    """The same model with the pairs of its rotary positions in halves, as Llama's readers have
    them: the components of a head in another order, in queries and keys alike.
    """
    position, found = config.position, dict(tensors)
    if not isinstance(position, Rotary) or position.pairs == "halves":
        return config, found
    width = config.head_width
    order = torch.cat((torch.arange(0, width, 2), torch.arange(1, width, 2)))
    for name, tensor in tensors.items():
        if ".attention.project." in name:
            q, k, v = tensor.split(queries_keys_values(config))
            q, k = (x.unflatten(0, (-1, width))[:, order].flatten(0, 1) for x in (q, k))
            found[name] = torch.cat((q, k, v))
        elif name.endswith((".query_norm.weight", ".key_norm.weight")):
            found[name] = tensor[order]
    return replace(config, position=replace(position, pairs="halves")), found


LLAMA = Family(
    name="modern",
    model_types=tuple(CLASSES),
    prefix="model.",
    rows=lambda config: ROWS + heads.decoder_rows(config.head, "score"),
    read=read,
    write=write,
    heads=r"lm_head\.|score\.|qa_outputs\.",
    buffers=r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",
    unused=r"lm_head\.weight|score\..*|qa_outputs\..*",
    older_prefix="transformer.",  # of Llama's and Qwen's classes for answers
    gather=eos_tokens.gather,
    notes=generation_defaults.notes,
    reform=in_halves,
)
