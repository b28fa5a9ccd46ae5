"""What a model is, as plain values: frozen, checked, and the same in JSON.

A choice between kinds is a value of a closed union (`position: Learned | Rotary | ...`), so a
number that makes sense for one kind only lives in that kind. No torch here: `--help` and
`families` stay instant. `build.py` turns these values into modules.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

# --- positions -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NoPosition:
    """None: the input is a set."""


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A learned vector for each of the model's `length` positions, added to the embedding."""


@dataclass(frozen=True, kw_only=True)
class Sinusoidal:
    """Sines and cosines, added to the embedding."""


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """Queries and keys are turned by their position."""

    base: float = 10_000.0

    def __post_init__(self) -> None:
        _require(self, "base", self.base > 0, "above 0")


@dataclass(frozen=True, kw_only=True)
class RelativeXL:
    """Transformer-XL's: content and distance are scored apart."""


@dataclass(frozen=True, kw_only=True)
class ALiBi:
    """A penalty on distance, at a rate of its own for each head."""


Position = NoPosition | Learned | Sinusoidal | Rotary | RelativeXL | ALiBi

# --- patterns ------------------------------------------------------------------------------


class Composable:
    """Patterns compose in a config as they do in `core.patterns`: `&` is both, `|` either."""

    def __and__(self, other: Any) -> Both:
        return Both(first=self, second=other)  # type: ignore[arg-type]

    def __or__(self, other: Any) -> Either:
        return Either(first=self, second=other)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Full(Composable):
    """Everyone sees everyone."""


@dataclass(frozen=True, kw_only=True)
class Causal(Composable):
    """Only itself and what came before."""


@dataclass(frozen=True, kw_only=True)
class Local(Composable):
    """Fewer than `window` places away."""

    window: int


@dataclass(frozen=True, kw_only=True)
class Strided(Composable):
    """A whole number of strides away."""

    stride: int


@dataclass(frozen=True, kw_only=True)
class Fixed(Composable):
    """The own block of `stride` places, and the last `summary` places of every block."""

    stride: int
    summary: int


@dataclass(frozen=True, kw_only=True)
class Graph(Composable):
    """Just the listed (query, key) edges."""

    edges: tuple[tuple[int, int], ...]
    nodes: int


@dataclass(frozen=True, kw_only=True)
class Both(Composable):
    """What two patterns both allow."""

    first: Pattern
    second: Pattern


@dataclass(frozen=True, kw_only=True)
class Either(Composable):
    """What at least one of two patterns allows."""

    first: Pattern
    second: Pattern


Pattern = Full | Causal | Local | Strided | Fixed | Graph | Both | Either

# --- norms, heads, pasts -------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LayerNorm:
    """Mean zero, variance one, then a learned scale and shift."""

    epsilon: float = 1e-5


@dataclass(frozen=True, kw_only=True)
class RMSNorm:
    """Mean square one, then a learned scale."""

    epsilon: float = 1e-6


Norm = LayerNorm | RMSNorm


@dataclass(frozen=True, kw_only=True)
class NextToken:
    """A generator's head; tied = it shares the embedding's weight."""

    tied: bool = True
    cap: float | None = None


@dataclass(frozen=True, kw_only=True)
class Pretraining:
    """BERT's two objectives: hidden tokens (tied) and next sentence."""


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """One class for the whole sequence."""

    classes: int = 2
    pool: Literal["mean", "max", "first", "pooler"] = "mean"

    def __post_init__(self) -> None:
        _require(self, "classes", self.classes >= 2, "at least 2")


Head = NextToken | Pretraining | Classifier


@dataclass(frozen=True, kw_only=True)
class KVCache:
    """Keys and values of all tokens so far."""


@dataclass(frozen=True, kw_only=True)
class HiddenMemory:
    """The last `length` hidden states of each layer, carried from segment to segment."""

    length: int

    def __post_init__(self) -> None:
        _require(self, "length", self.length >= 0, "at least 0")


Past = KVCache | HiddenMemory

# --- the model -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Dropout:
    """The share of values set to zero in training, by place."""

    embedding: float = 0.0
    attention: float = 0.0
    hidden: float = 0.0
    residual: float = 0.0

    def __post_init__(self) -> None:
        for name in ("embedding", "attention", "hidden", "residual"):
            _require(self, name, 0.0 <= getattr(self, name) < 1.0, "at least 0 and below 1")


@dataclass(frozen=True, kw_only=True)
class Biases:
    """Which matrices come with a bias."""

    attention: bool = True
    attention_output: bool = True
    feed_forward: bool = True
    head: bool = False


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """One stack: embedding, `layers` blocks, head."""

    name: str
    vocabulary: int
    length: int
    layers: int
    width: int
    heads: int
    hidden: int
    residual: Literal["pre", "post"]
    activation: Literal["relu", "gelu", "gelu_tanh", "squared_relu", "swiglu"]
    position: Position
    patterns: tuple[Pattern, ...]
    head: Head
    init: Literal["torch_default", "xavier", "normal", "gpt2", "transformer_xl", "sparse", "modern"]
    norm: Norm = LayerNorm()
    key_heads: int | None = None
    query_key_norm: Norm | None = None
    biases: Biases = field(default_factory=Biases)
    dropout: Dropout = field(default_factory=Dropout)
    embedding_scale: Literal["one", "sqrt_width"] = "one"
    embedding_norm: Norm | None = None
    segments: int | None = None
    past: Past | None = None

    def __post_init__(self) -> None:
        for name in ("vocabulary", "length", "layers", "width", "heads", "hidden"):
            _require(self, name, 1 <= getattr(self, name) <= 2**31, f"between 1 and {2**31}")
        if self.key_heads is not None:
            _require(self, "key_heads", 1 <= self.key_heads <= self.heads, "between 1 and heads")
        if self.segments is not None:
            _require(self, "segments", self.segments >= 1, "at least 1, or absent")
        _require(self, "patterns", len(self.patterns) > 0, "at least one pattern")

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def scale(self) -> float:
        """What embeddings are multiplied by."""
        return {"one": 1.0, "sqrt_width": math.sqrt(self.width)}[self.embedding_scale]


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig(ModelConfig):
    """Two stacks: `layers` encoder blocks that see everything, then `decoder_layers` with
    `patterns`; one vocabulary, and one embedding for source, target and output."""

    decoder_layers: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self, "decoder_layers", self.decoder_layers >= 1, "at least 1")


AnyModelConfig = Seq2SeqConfig | ModelConfig


# --- JSON ----------------------------------------------------------------------------------


_KINDS_OF_VALUE = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def to_json(value: Any) -> Any:
    """Plain lists and dictionaries; a dataclass carries its class name as `kind`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"kind": type(value).__name__, **fields}
    if isinstance(value, tuple):
        return [to_json(item) for item in value]
    return value


def model_from_json(data: Any) -> AnyModelConfig:
    """Read what `to_json` wrote; anything unknown, missing or of the wrong type is refused."""
    config: AnyModelConfig = _decode(AnyModelConfig, data, "model")
    return config


def nearest(name: str, known: Iterable[str]) -> str:
    """A closing remark for 'unknown name' errors: the nearest known name, or all of them."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"


def _decode(annotation: Any, data: Any, path: str) -> Any:
    """Turn JSON into the annotated type, naming the field by its path where it does not fit."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(typing.get_args(annotation), data, path)
    if origin is Literal:
        choices = typing.get_args(annotation)
        if data not in choices:
            raise ValueError(f"{path} is {data!r}: {nearest(str(data), choices)}")
        return data
    if origin is tuple:
        if not isinstance(data, list):
            raise ValueError(f"{path} is {data!r}, but it must be a list")
        items = typing.get_args(annotation)
        if items[-1] is Ellipsis:
            items = items[:1] * len(data)
        if len(items) != len(data):
            raise ValueError(f"{path} has {len(data)} entries, but it must have {len(items)}")
        pairs = enumerate(zip(items, data, strict=True))
        return tuple(_decode(item, entry, f"{path}[{i}]") for i, (item, entry) in pairs)
    if dataclasses.is_dataclass(annotation):
        return _decode_dataclass(annotation, data, path)
    # JSON writes 1.0 as 1 in some hands; the other way round would lose something.
    if annotation is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if type(data) is not annotation:
        raise ValueError(f"{path} is {data!r}, but it must be {_KINDS_OF_VALUE[annotation]}")
    return data


def _decode_union(members: tuple[Any, ...], data: Any, path: str) -> Any:
    if data is None and types.NoneType in members:
        return None
    kinds: dict[str, Any] = {m.__name__: m for m in members if hasattr(m, "__dataclass_fields__")}
    if not kinds:
        return _decode(next(m for m in members if m is not types.NoneType), data, path)
    kind = data.get("kind") if isinstance(data, dict) else None
    if str(kind) not in kinds:
        raise ValueError(f"{path} has kind {kind!r}: {nearest(str(kind), kinds)}")
    return _decode_dataclass(kinds[str(kind)], data, path)


def _decode_dataclass(annotation: Any, data: Any, path: str) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"{path} is {data!r}, but it must be an object")
    kind = data.get("kind", annotation.__name__)
    if kind != annotation.__name__:
        raise ValueError(f"{path} has kind {kind!r}, but it must be {annotation.__name__!r}")
    hints = typing.get_type_hints(annotation)
    known = {f.name for f in dataclasses.fields(annotation)}
    given = {name: value for name, value in data.items() if name != "kind"}
    for name in given:
        if name not in known:
            raise ValueError(f"{path} has an unknown field {name!r}: {nearest(name, known)}")
    for f in dataclasses.fields(annotation):
        required = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        if required and f.name not in given:
            raise ValueError(f"{path} lacks the field {f.name!r}")
    decoded = {name: _decode(hints[name], item, f"{path}.{name}") for name, item in given.items()}
    return annotation(**decoded)


def _require(owner: object, name: str, holds: bool, wanted: str) -> None:
    if not holds:
        raise ValueError(
            f"{type(owner).__name__}: {name} is {getattr(owner, name)!r}, but it must be {wanted}"
        )
