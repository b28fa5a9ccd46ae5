"""What pages are answered, as types; heavy answers are held to them by tests alone."""

from __future__ import annotations

from typing import Any, Literal

from clearformer.explore.requests import Model, Number, Part


class Array(Model):
    """Numbers in base64, little endian; bytes stand for scale[0] to scale[1]."""

    shape: list[int]
    dtype: Literal["float32", "uint8"]
    data: str
    scale: list[float] | None = None


class Problem(Model):
    code: str
    message: str
    hint: str | None = None
    limit: int | None = None
    field: str | None = None


class Failed(Model):
    error: Problem


class LimitsTold(Model):
    max_tokens: int
    max_text: int
    max_bytes: int
    max_new_tokens: int


class Info(Model):
    version: str
    torch: str
    device: str
    limits: LimitsTold
    generating: int
    problems: dict[str, str]


class CheckpointTold(Model):
    id: str
    step: int | None
    val_loss: float | None


class ModelTold(Model):
    id: str
    name: str
    family: str
    tasks: list[Literal["generate", "classify", "fill", "translate", "embed"]]
    n_layers: int
    n_heads: int
    n_key_heads: int
    d_model: int
    d_head: int
    d_hidden: int
    vocab_size: int
    max_len: int
    positions: str
    tokenizer: str | None
    norm: Literal["pre", "post"]
    causal: bool
    parts: list[Part]
    labels: list[str] | None
    memory: int | None
    n_params: int
    checkpoints: list[CheckpointTold]
    default_checkpoint: str | None
    sample: str
    sample_target: str | None


class ParameterRow(Model):
    name: str
    shape: list[int]
    count: int


class Parameters(Model):
    rows: list[ParameterRow]
    total: int


class Word(Model):
    id: int
    text: str
    display: str


class Token(Word):
    i: int
    special: bool
    joined: bool


class PartTold(Model):
    part: Part
    n_layers: int
    rows: int
    cols: int


class ShapeTold(Model):
    part: Part
    stage: str
    axes: str
    shape: list[int]


class NonFinite(Model):
    part: Part | None
    layer: int | None
    stage: str
    count: int
    nan: int
    inf: int


class LabelShare(Model):
    label: str
    p: Number


class TraceTold(Model):
    id: str
    model: str
    checkpoint: str
    family: str
    tokens: list[Token]
    target_tokens: list[Token] | None
    sentences: list[int] | None
    text_tokens: list[Token] | None
    query_tokens: dict[str, list[Token]]
    key_tokens: dict[str, list[Token]]
    parts: list[PartTold]
    n_layers: int
    n_heads: int
    memory: int
    thumbs: dict[str, Array]
    entropy: dict[str, Array]
    previous: dict[str, Array]
    first: dict[str, Array]
    shapes: list[ShapeTold]
    bits: Array | None
    probs: list[LabelShare] | None
    nonfinite: list[NonFinite]
    truncated: bool
    settings: dict[str, Any]


class AttentionTold(Model):
    rows: int
    cols: int
    pooled: int
    values: Array
    min: float
    max: float


class Group(Model):
    key_head: int
    of: int


class HeadTold(Model):
    q: Array
    k: Array
    v: Array
    output: Array
    q_proj: Array
    k_proj: Array
    scores_raw: Array
    scores_scaled: Array
    bias: Array | None
    scores_masked: Array
    weights: Array
    scale: float
    group: Group | None


class QueryTold(HeadTold):
    i: int
    products: Array
    contributions: Array


class ProjectionTold(Model):
    x: Array
    w: Array
    products: Array
    b: Number
    value: Number
    turned: Number


class LogitsTold(Model):
    i: int
    values: Array
    top: list[Word]


class ProbeTold(Model):
    tokens: list[Token]
    edited_tokens: list[Token]
    i: int
    delta: Array
    max_before: Number
    max_after: Number


class PermuteTold(Model):
    tokens: list[Token]
    permutation: list[int]
    inputs: Array
    outputs: Array
    permuted_outputs: Array
    max_error: Number


class RunTold(Model):
    id: str
    name: str
    family: str | None
    step: int
    steps: int | None
    state: Literal["running", "silent", "ended"]
    reason: str | None
    quiet: float
    model: str | None


class Sample(Model):
    step: int
    text: str


class Metrics(Model):
    series: dict[str, list[list[Number]]]
    last: dict[str, Any] | None
    samples: list[Sample]
    next: str
    reset: bool


class Stopping(Model):
    id: str


class SourceTold(Model):
    symbol: str
    file: str
    line: int
    text: str
    html: str


class Symbols(Model):
    symbols: list[str]
    stages: dict[str, str]


class ResidualRow(Model):
    layer: int
    stage: Literal["resid_pre", "resid_mid", "resid_cross", "resid_post"]


class ResidualTold(Model):
    part: Part
    norm: Literal["pre", "post"]
    rows: list[ResidualRow]
    norms: Array
    attn: Array
    mlp: Array
    cross: Array | None


class VectorsTold(Model):
    layer: int
    i: int
    part: Part
    norm: Literal["pre", "post"]
    before: Array
    attn: Array
    mid: Array
    mlp: Array
    after: Array
    cross: Array | None = None
    mid_cross: Array | None = None


class Candidate(Word):
    p: Number


class Tracked(Model):
    id: int
    p: Array
    rank: Array


class LensTold(Model):
    layers: int
    k: int
    tokens: list[list[list[Candidate]]]
    entropy: Array
    track: Tracked | None


class Unit(Model):
    j: int
    pre: Number
    post: Number


class UnitsTold(Model):
    units: list[Unit]


class Completeness(Model):
    total: Number
    sum: Number
    error: Number


class Pool(Model):
    kind: str
    values: Array


class AttributeTold(Model):
    method: Literal["grad_x_input", "occlusion", "ig"]
    label: str
    probs: list[LabelShare]
    tokens: list[Token]
    values: Array
    completeness: Completeness | None
    pool: Pool


class Fated(Token):
    fate: Literal["untouched", "mask", "random", "kept"]
    became: Word | None


class CorruptTold(Model):
    tokens: list[Fated]
    seed: int


class Histogram(Model):
    edges: list[float]
    counts: list[int]


class Spread(Model):
    histogram: Histogram
    sd: float
    largest: float
    entropy: float


class ScalingTold(Model):
    d: int
    n: int
    seed: int
    raw: Spread
    scaled: Spread


class PositionsTold(Model):
    kind: str
    n: int
    similarity: Array
    norms: Array


class PatternsTold(Model):
    kind: str
    n: int
    stride: int
    mask: Array
    edges: int
    causal_edges: int
    all_edges: int
    reach: Array
    counts: list[list[int]]


class MemoryTold(Model):
    segment: int
    memory: int
    layers: int
    segments: int
    reach: list[int]
    timeline: Array
    starts: list[int]


class CompareTold(Model):
    tokens: list[Token]
    output_tokens: list[Token]
    parts: list[Part]
    diff_thumbs: dict[str, Array]
    head_max: dict[str, Array]
    kl: Array
    max_abs: Number
    max_logit: Number
