"""Architectures of llama.cpp: their keys and tensor names in a GGUF file, both ways.

The settings of a file are translated to those of a config.json, and back, so that a Hugging Face
family checks and reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from clearformer.config import Llama3Scaling, ModelConfig, NextToken, Rotary
from clearformer.core.positions import Scaling
from clearformer.hub.family import Family
from clearformer.hub.gpt2 import GPT2
from clearformer.hub.llama import LLAMA
from clearformer.hub.safetensors_files import Weights
from clearformer.hub.tensor_names import GATE_UP, QKV, Rename, Stacked, qkv_rows

OURS, THEIRS = "stack.blocks.{}.", "blk.{}."
OUTPUT, FACTORS = "output.weight", "rope_freqs.weight"
# Names that all architectures share.
COMMON = (
    Rename("embedding.token.weight", "token_embd.weight"),
    Rename("stack.norm.{}", "output_norm.{}"),
    Rename("head.project.weight", OUTPUT),
    Rename(OURS + "attention_norm.{}", THEIRS + "attn_norm.{}"),
    Rename(OURS + "attention.output.{}", THEIRS + "attn_output.{}"),
    Rename(OURS + "feed_forward_norm.{}", THEIRS + "ffn_norm.{}"),
    Rename(OURS + "feed_forward.down.{}", THEIRS + "ffn_down.{}"),
)
GPT2_NAMES = (
    *COMMON,
    Rename("embedding.position.table.weight", "position_embd.weight"),
    Rename(OURS + "attention.project.{}", THEIRS + "attn_qkv.{}"),
    Rename(OURS + "feed_forward.up.{}", THEIRS + "ffn_up.{}"),
)
GATED = (
    *COMMON,
    Rename(OURS + "feed_forward.up.{}", (THEIRS + "ffn_gate.{}", THEIRS + "ffn_up.{}"), GATE_UP),
    Rename(OURS + "attention.query_norm.weight", THEIRS + "attn_q_norm.weight"),
    Rename(OURS + "attention.key_norm.weight", THEIRS + "attn_k_norm.weight"),
)
QKV_NAMES = tuple(f"{THEIRS}attn_{part}.{{}}" for part in "qkv")
QKV_HALVES = Rename(OURS + "attention.project.{}", QKV_NAMES, QKV)


@dataclass(frozen=True)
class NeighbourQKV(Stacked):
    """Queries, keys and values apart, with rotary pairs side by side instead of in halves."""

    head_width: int = 2

    def join(self, theirs: Sequence[Tensor]) -> Tensor:
        queries, keys, values = theirs
        half = self.head_width // 2
        parts = (x.unflatten(0, (-1, half, 2)) for x in (queries, keys))
        halves = [x.transpose(1, 2).flatten(0, 2) for x in parts]
        return torch.cat((*halves, values))

    def split(self, ours: Tensor, config: ModelConfig) -> list[Tensor]:
        queries, keys, values = super().split(ours, config)
        half = self.head_width // 2
        parts = (x.unflatten(0, (-1, 2, half)) for x in (queries, keys))
        neighbours = [x.transpose(1, 2).flatten(0, 2).contiguous() for x in parts]
        return [*neighbours, values]


def _llama_names(config: ModelConfig) -> tuple[Rename, ...]:
    layout = NeighbourQKV(qkv_rows, config.resolved_head_width)
    return (*GATED, Rename(OURS + "attention.project.{}", QKV_NAMES, layout))


# Settings of a config.json and their keys; the first ones are required.
SIZES = {
    "max_position_embeddings": "context_length",
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
}
GPT2_SIZES = {
    "n_positions": "context_length",
    "n_layer": "block_count",
    "n_embd": "embedding_length",
    "n_inner": "feed_forward_length",
    "n_head": "attention.head_count",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
}
OPTIONAL = {"num_key_value_heads": "attention.head_count_kv", "rope_theta": "rope.freq_base"}
HEAD_WIDTHS = ("attention.key_length", "attention.value_length", "rope.dimension_count")
SCALING, FACTOR, ORIGINAL = (
    f"rope.scaling.{name}" for name in ("type", "factor", "original_context_length")
)
LOW, HIGH, LENGTH = 1.0, 4.0, 8192  # of every published model with factors in `rope_freqs`
# Keys that change nothing here: the vocabulary is as large as its embedding.
IGNORED_KEYS = {"vocab_size", "attention.causal", "rope.scaling.finetuned"}


@dataclass(frozen=True)
class Architecture:
    """One architecture of llama.cpp."""

    name: str
    family: Family  # whose settings and tensors it has
    required: Mapping[str, str]
    optional: Mapping[str, str]
    names: Callable[[ModelConfig], tuple[Rename, ...]]
    class_name: str
    # What is not one key for one setting: by name, keys and weights, and back.
    read_rest: Callable[[str, Mapping[str, Any], Weights], dict[str, Any]] = (
        lambda name, keys, weights: {}
    )
    write_rest: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda settings: {}

    @property
    def tensors(self) -> Family:
        """The family, with the tensor names of a GGUF file."""
        return replace(
            self.family, renames=self.names, prefix="", old_prefix=None, heads="", unused="",
            buffers=FACTORS.replace(".", r"\."),
        )  # fmt: skip

    def read_settings(self, metadata: Mapping[str, Any], weights: Weights) -> dict[str, Any]:
        """The keys of this architecture as a config.json; unknown ones are refused."""
        prefix, names = f"{self.name}.", set(weights.names())
        keys = {k.removeprefix(prefix): v for k, v in metadata.items() if k.startswith(prefix)}
        missing = [key for key in self.required.values() if key not in keys]
        if missing:
            raise ValueError(f"it lacks the key {prefix}{missing[0]}")
        if "token_embd.weight" not in names:
            raise ValueError("it lacks the tensor token_embd.weight")
        table = {**self.required, **self.optional}
        known = {*table.values(), *HEAD_WIDTHS, SCALING, FACTOR, ORIGINAL, *IGNORED_KEYS}
        unknown = [key for key in keys if key not in known]
        if unknown:
            key = unknown[0]
            raise ValueError(
                f"{prefix}{key:.60} is {keys[key]!r:.60}, which clearformer does not know: it "
                f"might change what the model computes"
            )
        settings = {ours: keys[key] for ours, key in table.items() if key in keys}
        settings |= {
            "model_type": self.name,
            "architectures": [self.class_name],
            "vocab_size": weights.shape("token_embd.weight")[0],
            "tie_word_embeddings": OUTPUT not in names,
        }
        return settings | self.read_rest(self.name, keys, weights)

    def write_settings(self, settings: Mapping[str, Any]) -> dict[str, int | float | str]:
        """The inverse of `read_settings`, with full keys."""
        table = {**self.required, **self.optional}
        keys = {table[ours]: value for ours, value in settings.items() if ours in table}
        keys["vocab_size"] = settings["vocab_size"]
        keys |= self.write_rest(settings)
        return {f"{self.name}.{key}": value for key, value in keys.items()}


# --- settings of Llama and Qwen that depend on one another -----------------------------------


def _read_llama(name: str, keys: Mapping[str, Any], weights: Weights) -> dict[str, Any]:
    width, heads, names = keys["embedding_length"], keys["attention.head_count"], weights.names()
    whole = all(type(each) is int and each > 0 for each in (width, heads))
    head_width = keys.get("attention.key_length", width // heads if whole else None)
    for key in HEAD_WIDTHS:
        if keys.get(key, head_width) != head_width:
            raise ValueError(
                f"{name}.{key} is {keys[key]!r:.40}, but a head has the width "
                f"{head_width!r:.40}: clearformer computes heads of one width"
            )
    settings: dict[str, Any] = {"head_dim": head_width}
    if name == "llama":
        settings["attention_bias"] = "blk.0.attn_output.bias" in names
        settings["mlp_bias"] = "blk.0.ffn_up.bias" in names
    scaling = _read_scaling(name, keys, weights)
    return settings if scaling is None else {**settings, "rope_scaling": scaling}


def _read_scaling(name: str, keys: Mapping[str, Any], weights: Weights) -> dict[str, Any] | None:
    kind = keys.get(SCALING, "none")
    if FACTORS in weights.names():
        return _llama3(weights.tensor(FACTORS), keys)
    if kind == "linear":
        return {"rope_type": "linear", "factor": keys.get(FACTOR)}
    if kind != "none":
        raise ValueError(
            f"{name}.{SCALING} is {kind!r:.40}, but clearformer computes none and linear, "
            f"and the factors of Llama 3"
        )
    return None


def _write_llama(settings: Mapping[str, Any]) -> dict[str, Any]:
    keys: dict[str, Any] = dict.fromkeys(HEAD_WIDTHS, settings["head_dim"])
    rotary = settings["rope_parameters"]
    if rotary["rope_type"] == "linear":
        keys |= {SCALING: "linear", FACTOR: rotary["factor"]}
    if rotary["rope_type"] == "llama3":
        keys[ORIGINAL] = rotary["original_max_position_embeddings"]
    return keys


def _llama_like(name: str, names: Callable[[ModelConfig], tuple[Rename, ...]]) -> Architecture:
    title = f"{name.capitalize()}ForCausalLM"
    return Architecture(
        name, LLAMA, SIZES, OPTIONAL, names, title, read_rest=_read_llama, write_rest=_write_llama
    )


ARCHITECTURES: Mapping[str, Architecture] = {
    each.name: each
    for each in (
        Architecture("gpt2", GPT2, GPT2_SIZES, {}, lambda config: GPT2_NAMES, "GPT2LMHeadModel"),
        _llama_like("llama", _llama_names),
        _llama_like("qwen2", lambda config: (*GATED, QKV_HALVES)),
        _llama_like("qwen3", lambda config: (*GATED, QKV_HALVES)),
    )
}


def architecture_of(metadata: Mapping[str, Any]) -> Architecture:
    """The architecture that a file names; unsupported ones are refused."""
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise ValueError(
            f"its architecture is {name!r:.60}, but clearformer reads {', '.join(ARCHITECTURES)}"
        )
    return ARCHITECTURES[name]


def architecture_for(config: ModelConfig, settings: Mapping[str, Any]) -> Architecture:
    """The architecture for a model with this config.json; ValueError if llama.cpp has none."""
    name = settings["model_type"]
    problem = None
    if not isinstance(config.head, NextToken):
        problem = f"it is {config.noun}, and GGUF is for generators"
    elif name == "mistral" or settings.get("use_sliding_window"):
        problem = "its attention has a window, which llama.cpp does not compute for this kind"
    elif name not in ARCHITECTURES:
        problem = f"it is a {name}, and clearformer writes {', '.join(ARCHITECTURES)}"
    elif name == "gpt2" and config.activation != "gelu_tanh":
        problem = f"its activation is {config.activation}, but llama.cpp computes gelu_tanh"
    elif name == "qwen2" and config.heads * config.resolved_head_width != config.width:
        problem = "its heads together are not as wide as the model, which llama.cpp requires"
    elif name == "qwen3" and settings["attention_bias"]:
        problem = "its attention has biases, which llama.cpp does not read for qwen3"
    if problem is not None:
        raise ValueError(
            f"{config.name} cannot be a GGUF file: {problem}: use --to huggingface or --to "
            f"safetensors"
        )
    return ARCHITECTURES[name]


# --- Llama 3's rotary factors ----------------------------------------------------------------


def rotary_factors(config: ModelConfig) -> Tensor | None:
    """By how much each frequency is divided, (D/2,); None without Llama 3's scaling."""
    position = config.position
    if not isinstance(position, Rotary) or not isinstance(position.scaling, Llama3Scaling):
        return None
    return _factors(position.scaling, config.resolved_head_width, position.base)


def _factors(scaling: Scaling, width: int, base: float) -> Tensor:
    frequencies = base ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)
    return (frequencies / scaling.scaled(frequencies)).float()


def _llama3(factors: Tensor, keys: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that give these factors: a file has the factors alone."""
    factors = factors.float()
    factor, length = round(float(factors.max()), 4), keys.get(ORIGINAL, LENGTH)
    base = keys.get("rope.freq_base", 10_000.0)
    usable = type(length) is int and length > 0 and type(base) is float and 0 < base < 1e12
    if usable and 1 <= factor < 1e6:
        scaling = Llama3Scaling(factor=factor, low=LOW, high=HIGH, length=length)
        expected = _factors(scaling, 2 * factors.numel(), base)
        if torch.allclose(factors.flatten(), expected, rtol=1e-4):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": LOW,
                "high_freq_factor": HIGH,
                "original_max_position_embeddings": length,
            }
    raise ValueError(f"its {FACTORS} are not those of Llama 3, and clearformer computes no others")
