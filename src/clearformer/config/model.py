"""What a model is: positions, patterns, norms, and the numbers that hold them together."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, assert_never

from clearformer import limits
from clearformer.config.codec import from_json, require
from clearformer.config.heads import Head, Verb

# --- positions -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NoPosition:
    """None: the input is a set."""


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A learned vector for each of the model's `length` positions, added to the embedding."""


@dataclass(frozen=True, kw_only=True)
class Sinusoidal:
    """Sines and cosines, added to the embedding: taking turns, or sines first (Marian)."""

    order: Literal["turns", "halves"] = "turns"


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A learned vector for each row and each column of a picture `columns` pixels wide."""

    columns: int

    def __post_init__(self) -> None:
        require(self, "columns", self.columns >= 1, "at least 1")


@dataclass(frozen=True, kw_only=True)
class Slower:
    """Everything turns `factor` times slower: a longer text in the old range of angles."""

    factor: float

    def __post_init__(self) -> None:
        require(self, "factor", self.factor >= 1, "at least 1")


@dataclass(frozen=True, kw_only=True)
class SlowerBelow:
    """Llama 3's: what turns fewer than `low` times over `length` tokens turns `factor` times
    slower, what turns more than `high` times as before, and between the two it passes over."""

    factor: float
    low: float
    high: float
    length: int

    def __post_init__(self) -> None:
        require(self, "factor", self.factor >= 1, "at least 1")
        require(self, "high", 0 < self.low < self.high, "above low, which is above 0")
        require(self, "length", self.length >= 1, "at least 1")


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """Queries and keys are turned by their position."""

    base: float = 10_000.0
    pairs: Literal["halves", "neighbours"] = "halves"  # which components turn together
    scaling: Slower | SlowerBelow | None = None

    def __post_init__(self) -> None:
        require(self, "base", self.base > 0, "above 0")


@dataclass(frozen=True, kw_only=True)
class RelativeXL:
    """Transformer-XL's: content and distance are scored apart."""


@dataclass(frozen=True, kw_only=True)
class ALiBi:
    """A penalty on distance, at a rate of its own for each head."""


Position = NoPosition | Learned | Sinusoidal | Grid | Rotary | RelativeXL | ALiBi

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

    def __post_init__(self) -> None:
        require(self, "window", self.window >= 1, "at least 1")


@dataclass(frozen=True, kw_only=True)
class Strided(Composable):
    """A whole number of strides away."""

    stride: int

    def __post_init__(self) -> None:
        require(self, "stride", self.stride >= 1, "at least 1")


@dataclass(frozen=True, kw_only=True)
class Row(Composable):
    """The own row of a picture `width` pixels wide; its column is Strided."""

    width: int

    def __post_init__(self) -> None:
        require(self, "width", self.width >= 1, "at least 1")


@dataclass(frozen=True, kw_only=True)
class Fixed(Composable):
    """The own block of `stride` places, and the last `summary` places of every block."""

    stride: int
    summary: int

    def __post_init__(self) -> None:
        require(self, "stride", self.stride >= 1, "at least 1")
        require(self, "summary", 1 <= self.summary <= self.stride, "between 1 and the stride")


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


@dataclass(frozen=True, kw_only=True)
class Region(Composable):
    """Queries from one stretch of positions look at keys of another; no end: to the last."""

    queries: tuple[int, int | None]
    keys: tuple[int, int | None]


@dataclass(frozen=True, kw_only=True)
class Shifted(Composable):
    """A pattern whose positions count from `by`."""

    pattern: Pattern
    by: int


@dataclass(frozen=True, kw_only=True)
class PerHead(Composable):
    """A pattern of its own for each head; fewer patterns than heads go round."""

    patterns: tuple[Pattern, ...]

    def __post_init__(self) -> None:
        require(self, "patterns", len(self.patterns) > 0, "at least one pattern")


Pattern = (
    Full | Causal | Local | Strided | Row | Fixed | Graph
    | Both | Either | Region | Shifted | PerHead
)  # fmt: skip


def strides(pattern: Pattern) -> tuple[int, ...]:
    """Every distance that a pattern is made from: windows, strides and widths of rows."""
    match pattern:
        case Local(window=size) | Strided(stride=size) | Fixed(stride=size) | Row(width=size):
            return (size,)
        case Both(first=first, second=second) | Either(first=first, second=second):
            return strides(first) + strides(second)
        case Shifted(pattern=inner):
            return strides(inner)
        case PerHead(patterns=several):
            return tuple(size for each in several for size in strides(each))
        case Full() | Causal() | Graph() | Region():
            return ()
        case _:
            assert_never(pattern)


# --- norms, pasts --------------------------------------------------------------------------


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
        most = limits.MOST_LENGTH
        require(self, "length", 0 <= self.length <= most, f"at least 0 and at most {most}")


Past = KVCache | HiddenMemory

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
    """Whole tokens: the model must not lean on a single word."""
    embedding: float = 0.0
    attention: float = 0.0
    hidden: float = 0.0
    residual: float = 0.0

    def __post_init__(self) -> None:
        for name in ("token", "embedding", "attention", "hidden", "residual"):
            require(self, name, 0.0 <= getattr(self, name) < 1.0, "at least 0 and below 1")


@dataclass(frozen=True, kw_only=True)
class Biases:
    """Which matrices come with a bias."""

    attention: bool = True
    attention_output: bool = True
    feed_forward: bool = True
    head: bool = False


MOST = {
    "vocabulary": limits.MOST_VOCABULARY,
    "length": limits.MOST_LENGTH,
    "layers": limits.MOST_LAYERS,
    "width": limits.MOST_WIDTH,
    "heads": limits.MOST_HEADS,
    "hidden": limits.MOST_HIDDEN,
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
    activation: Literal["relu", "gelu", "gelu_tanh", "silu", "squared_relu", "swiglu"]
    position: Position
    patterns: tuple[Pattern, ...]
    head: Head
    init: Literal["torch_default", "xavier", "normal", "gpt2", "transformer_xl", "sparse", "modern"]
    norm: Norm = LayerNorm()
    key_heads: int | None = None
    per_head: int | None = None  # width of a head; absent: the model's, shared out
    query_key_norm: Norm | None = None
    biases: Biases = field(default_factory=Biases)
    dropout: Dropout = field(default_factory=Dropout)
    embedding_scale: Literal["one", "sqrt_width"] = "one"
    embedding_norm: Norm | None = None
    segments: int | None = None
    neighbours: Neighbours | None = None
    past: Past | None = None
    kernel: Literal["fused", "blockwise", "explicit", "loop"] = "fused"

    def __post_init__(self) -> None:
        for name, most in MOST.items():
            wanted = f"between 1 and {most} (MOST_{name.upper()})"
            require(self, name, 1 <= getattr(self, name) <= most, wanted)
        if self.key_heads is not None:
            wanted = f"between 1 and heads, which is {self.heads}"
            require(self, "key_heads", 1 <= self.key_heads <= self.heads, wanted)
        if self.per_head is not None:
            allowed = 1 <= self.per_head <= limits.MOST_WIDTH
            require(self, "per_head", allowed, f"from 1 to {limits.MOST_WIDTH}, or absent")
            relative = isinstance(self.position, RelativeXL)
            require(self, "per_head", not relative, "absent in a model with relative positions")
        if self.segments is not None:
            allowed = 1 <= self.segments <= limits.MOST_SEGMENTS
            require(self, "segments", allowed, f"from 1 to {limits.MOST_SEGMENTS}, or absent")
        if self.neighbours is not None:
            # A step that continues a past is not shown the token before.
            require(self, "neighbours", self.past is None, "absent in a model with a past")
        require(self, "patterns", len(self.patterns) > 0, "at least one pattern")

    @property
    def head_width(self) -> int:
        return self.width // self.heads if self.per_head is None else self.per_head

    @property
    def scale(self) -> float:
        """What embeddings are multiplied by."""
        return {"one": 1.0, "sqrt_width": math.sqrt(self.width)}[self.embedding_scale]

    @property
    def memory(self) -> int | None:
        """Hidden states that each layer carries from segment to segment; None: no such memory."""
        return None if self.past is None else self.past.memory

    @property
    def noun(self) -> str:
        """What such a model is called: "a classifier"."""
        return self.head.noun

    @property
    def verbs(self) -> tuple[Verb, ...]:
        """What the model can be asked to do, the main verb first."""
        return self.head.verbs

    def require_verb(self, verb: Verb, name: object = None) -> None:
        """Raise ValueError if the model, called `name`, does not answer a verb."""
        if verb not in self.verbs:
            raise ValueError(
                f"{name or self.name} is {self.noun}: it can {' and '.join(self.verbs)}, not {verb}"
            )

    @property
    def parts(self) -> tuple[str, ...]:
        """The kinds of attention that there are, by name."""
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
        """The same model with another depth."""
        return replace(self, layers=layers)


@dataclass(frozen=True, kw_only=True)
class Marks:
    """The ids that open a target and close a source or a target."""

    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class TargetRules:
    """What the makers of a model lay down about the targets it writes."""

    never: tuple[int, ...] = ()  # ids that do not come out
    share: Literal["kept", "given"] = "kept"  # "given": their probability goes to all others
    limit: Literal["cut", "closed"] = "cut"  # "closed": the last token there may be is the end mark
    most: int | None = None  # tokens of a target, its end mark included; none: the model's length

    def __post_init__(self) -> None:
        require(self, "never", all(each >= 0 for each in self.never), "ids from 0 on")
        require(self, "most", self.most is None or self.most >= 1, "at least 1, or absent")


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Ids that are common on one side and rare on the other: which way round a model goes."""

    source: tuple[int, ...] = ()
    target: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig(ModelConfig):
    """Two stacks: `layers` encoder blocks that see everything, then `decoder_layers` with
    `patterns`; one vocabulary, and one embedding for source, target and output."""

    decoder_layers: int
    marks: Marks | None = None  # once data has told them
    sides: Sides | None = None  # likewise
    rules: TargetRules | None = None  # none: a target is cut at the length, and has no start mark

    def __post_init__(self) -> None:
        super().__post_init__()
        most = limits.MOST_LAYERS
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

    @property
    def target_rules(self) -> TargetRules:
        """Unless its makers say otherwise, the start mark opens a target and never comes out."""
        if self.rules is not None or self.marks is None:
            return self.rules or TargetRules()
        return TargetRules(never=tuple({self.marks.start} - {self.marks.end}))


AnyModelConfig = Seq2SeqConfig | ModelConfig


def model_from_json(data: Any) -> AnyModelConfig:
    """Read what `to_json` wrote; anything unknown, missing or of the wrong type is refused."""
    config: AnyModelConfig = from_json(AnyModelConfig, with_family(data), "model")
    return config


def with_family(data: Any) -> Any:
    """A model's JSON with its family, which earlier versions wrote as the beginning of its name."""
    name = data.get("name") if isinstance(data, dict) else None
    if not isinstance(name, str) or "family" in data:
        return data
    return {**data, "family": name.partition("-")[0]}
