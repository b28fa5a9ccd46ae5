"""ModelConfig and Seq2SeqConfig: patterns, norms, caches and sizes of a model."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from clearformer import limits
from clearformer.config.codec import from_json
from clearformer.config.generation import (
    GenerationDefaults,
    generation_from_json,
    without_generation,
)
from clearformer.config.heads import Head, Verb
from clearformer.config.layers import Activation, ActivationName, LayerNorm, Norm
from clearformer.config.ngrams import Ngrams
from clearformer.core.patterns import Both, Either, Fixed, Local, Pattern, Strided, require
from clearformer.core.positions import Position
from clearformer.extensions.patterns import PerHead, Row, Shifted

# --- patterns ------------------------------------------------------------------------------


def strides(pattern: Pattern) -> tuple[int, ...]:
    """Every distance in a pattern: windows, strides and row widths."""
    match pattern:
        case Local(window=size) | Strided(stride=size) | Fixed(stride=size) | Row(width=size):
            return (size,)
        case Both(first=first, second=second) | Either(first=first, second=second):
            return strides(first) + strides(second)
        case Shifted(pattern=inner):
            return strides(inner)
        case PerHead(patterns=several):
            return tuple(size for each in several for size in strides(each))
        case _:
            return ()


# --- caches --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class KVCache:
    """Keys and values of all tokens so far."""

    @property
    def memory(self) -> int | None:
        return None


@dataclass(frozen=True, kw_only=True)
class HiddenMemory:
    """The last `length` hidden states of each layer, carried from segment to segment."""

    length: int

    @property
    def memory(self) -> int | None:
        return self.length

    def __post_init__(self) -> None:
        most = limits.MAX_LENGTH
        require(self, "length", 0 <= self.length <= most, f"at least 0 and at most {most}")


Cache = KVCache | HiddenMemory

# --- the model -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """A vector for each pair of neighbouring tokens too, in a table of `buckets` rows."""

    buckets: int = 2**17

    def __post_init__(self) -> None:
        require(self, "buckets", 1 <= self.buckets <= 2**28, f"between 1 and {2**28}")


@dataclass(frozen=True, kw_only=True)
class Dropout:
    """The share of values set to zero in training, by place."""

    token: float = 0.0
    """Dropout of whole tokens, so that the model does not rely on single words."""
    embedding: float = 0.0
    attention: float = 0.0
    hidden: float = 0.0
    residual: float = 0.0

    def __post_init__(self) -> None:
        for name in ("token", "embedding", "attention", "hidden", "residual"):
            require(self, name, 0.0 <= getattr(self, name) < 1.0, "at least 0 and below 1")


@dataclass(frozen=True, kw_only=True)
class Biases:
    """Which matrices have a bias."""

    attention: bool = True
    attention_output: bool = True
    feed_forward: bool = True
    head: bool = False


MOST = {
    "vocabulary": limits.MAX_VOCABULARY,
    "length": limits.MAX_LENGTH,
    "layers": limits.MAX_LAYERS,
    "width": limits.MAX_WIDTH,
    "heads": limits.MAX_HEADS,
    "hidden": limits.MAX_HIDDEN,
}


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """One stack: embedding, `layers` blocks, head."""

    name: str
    family: str | None = None  # the architecture that a preset or a checkpoint belongs to
    vocabulary: int
    length: int
    layers: int
    width: int
    heads: int
    hidden: int
    residual: Literal["pre", "post"]
    activation: ActivationName | Activation
    position: Position
    patterns: tuple[Pattern, ...]
    head: Head
    init: Literal["torch_default", "xavier", "normal", "gpt2", "transformer_xl", "sparse", "modern"]
    norm: Norm = LayerNorm()
    key_heads: int | None = None
    head_width: int | None = None  # of each head; absent: the heads share the model's width
    attention_output: Literal["linear", "none"] = "linear"  # "none": attention without W_o
    query_key_norm: Norm | None = None
    biases: Biases = field(default_factory=Biases)
    dropout: Dropout = field(default_factory=Dropout)
    embedding_scale: Literal["one", "sqrt_width"] = "one"
    embedding_norm: Norm | None = None
    segments: int | None = None
    neighbours: Neighbours | None = None
    ngrams: Ngrams | None = None
    cache: Cache | None = None
    kernel: Literal["fused", "blockwise", "explicit", "loop"] = "fused"

    def __post_init__(self) -> None:
        for name, most in MOST.items():
            wanted = f"between 1 and {most} (MAX_{name.upper()})"
            require(self, name, 1 <= getattr(self, name) <= most, wanted)
        if self.key_heads is not None:
            wanted = f"between 1 and heads, which is {self.heads}"
            require(self, "key_heads", 1 <= self.key_heads <= self.heads, wanted)
        if self.head_width is not None:
            allowed = 1 <= self.head_width <= limits.MAX_WIDTH
            require(self, "head_width", allowed, f"from 1 to {limits.MAX_WIDTH}, or absent")
        if self.attention_output == "none" and self.heads * self.resolved_head_width != self.width:
            merged = f"{self.heads} heads of {self.resolved_head_width}"
            wanted = f"'linear' unless the heads together are as wide as the model ({self.width}), "
            require(self, "attention_output", False, f"{wanted}but it has {merged}")
        if self.segments is not None:
            allowed = 1 <= self.segments <= limits.MAX_SEGMENTS
            require(self, "segments", allowed, f"from 1 to {limits.MAX_SEGMENTS}, or absent")
        if self.neighbours is not None:
            # A step with a cache does not get the previous token.
            require(self, "neighbours", self.cache is None, "absent in a model with a cache")
        if self.ngrams is not None:
            wanted = "absent in a model that does not classify texts"
            require(self, "ngrams", _can_have_ngrams(self.head), wanted)
        require(self, "patterns", len(self.patterns) > 0, "at least one pattern")

    @property
    def resolved_head_width(self) -> int:
        return self.width // self.heads if self.head_width is None else self.head_width

    @property
    def scale(self) -> float:
        """The factor on the embeddings."""
        return {"one": 1.0, "sqrt_width": math.sqrt(self.width)}[self.embedding_scale]

    @property
    def memory(self) -> int | None:
        """Hidden states that each layer carries from segment to segment; None: no such memory."""
        return None if self.cache is None else self.cache.memory

    @property
    def noun(self) -> str:
        """The noun for such a model: "a classifier"."""
        return self.head.noun

    @property
    def verbs(self) -> tuple[Verb, ...]:
        """The verbs that the model supports, the main one first."""
        return self.head.verbs

    def require_verb(self, verb: Verb, name: object = None) -> None:
        """Raise ValueError if the model, called `name`, does not support a verb."""
        if verb not in self.verbs:
            raise ValueError(
                f"{name or self.name} is {self.noun}: it can {' and '.join(self.verbs)}, not {verb}"
            )

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the attention parts."""
        return ("self",)

    @property
    def writing_part(self) -> str:
        """The part whose outputs become tokens."""
        return "self"

    @property
    def attention_layers(self) -> int:
        """Attention layers of all parts together."""
        return self.layers

    def with_layers(self, layers: int) -> Self:
        """The same config with another depth."""
        return replace(self, layers=layers)

    def with_head(self, head: Head, name: object = None) -> Self:
        """The same body with another head; ValueError if it has no use for one."""
        return replace(self, head=head, ngrams=self.ngrams if _can_have_ngrams(head) else None)


def _can_have_ngrams(head: Head) -> bool:
    return head.text_task in ("classes", "multi-label") and not head.two_texts


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig(ModelConfig):
    """Two stacks: `layers` encoder blocks that see everything, then `decoder_layers` with
    `patterns`; one vocabulary, and one embedding for source, target and output."""

    decoder_layers: int

    def __post_init__(self) -> None:
        super().__post_init__()
        most = limits.MAX_LAYERS
        require(self, "decoder_layers", 1 <= self.decoder_layers <= most, f"between 1 and {most}")

    @property
    def noun(self) -> str:
        return "a translator"

    @property
    def verbs(self) -> tuple[Verb, ...]:
        return ("translate",)

    @property
    def parts(self) -> tuple[str, ...]:
        return ("encoder", "decoder", "cross")

    @property
    def writing_part(self) -> str:
        return "decoder"

    @property
    def attention_layers(self) -> int:
        return self.layers + 2 * self.decoder_layers  # self- and cross-attention

    def with_layers(self, layers: int) -> Self:
        """Another depth of the encoder; the decoder's changes in proportion."""
        of_decoder = max(1, round(self.decoder_layers * layers / self.layers))
        return replace(self, layers=layers, decoder_layers=of_decoder)

    def with_head(self, head: Head, name: object = None) -> Self:
        raise ValueError(
            f"{name or self.name} is a translator, which can only be trained further on pairs: "
            f"for {head.noun} use a generator, an encoder or a classifier"
        )


AnyModelConfig = Seq2SeqConfig | ModelConfig


def model_from_json(data: Any) -> AnyModelConfig:
    """Read what `to_json` wrote; anything unknown, missing or of the wrong type is refused.

    Generation settings, which earlier versions kept there, are left out.
    """
    model, _ = without_generation(data)
    config: AnyModelConfig = from_json(AnyModelConfig, with_family(model), "model")
    return config


def model_and_generation_from_json(
    model: Any, generation: Any = None
) -> tuple[AnyModelConfig, GenerationDefaults]:
    """Read a model and its generation defaults; earlier versions kept them in the model's JSON."""
    if generation is None:
        _, generation = without_generation(model)
    return model_from_json(model), generation_from_json(generation)


def with_family(data: Any) -> Any:
    """A model's JSON with its family, which earlier versions wrote as the beginning of its name."""
    name = data.get("name") if isinstance(data, dict) else None
    if not isinstance(name, str) or "family" in data:
        return data
    return {**data, "family": name.partition("-")[0]}
