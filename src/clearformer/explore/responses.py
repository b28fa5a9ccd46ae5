"""Response bodies as types; tests check the large ones, which routes serialize themselves."""

from __future__ import annotations

from typing import Any, Literal

from clearformer.explore.limits import Limits
from clearformer.explore.requests import ApiModel, Number, Part


class Array(ApiModel):
    """Base64 of little-endian numbers; bytes are quantized from scale[0] to scale[1]."""

    shape: list[int]
    dtype: Literal["float32", "uint8"]
    data: str
    scale: list[float] | None = None


class ErrorBody(ApiModel):
    code: str
    message: str
    hint: str | None = None
    limit: int | None = None
    field: str | None = None


class ErrorResponse(ApiModel):
    error: ErrorBody


class Info(ApiModel):
    version: str
    torch: str
    device: str
    limits: Limits
    generating: int
    problems: dict[str, str]


class CheckpointResponse(ApiModel):
    id: str
    step: int | None
    val_loss: float | None


class ModelResponse(ApiModel):
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
    longest: int | None
    positions: str
    tokenizer: str | None
    norm: Literal["pre", "post"]
    causal: bool
    parts: list[Part]
    labels: list[str] | None
    memory: int | None
    n_params: int
    checkpoints: list[CheckpointResponse]
    default_checkpoint: str | None
    sample: str
    sample_target: str | None


class ParameterRow(ApiModel):
    name: str
    shape: list[int]
    count: int


class Parameters(ApiModel):
    rows: list[ParameterRow]
    total: int


class VocabularyItem(ApiModel):
    id: int
    text: str
    display: str


class Token(VocabularyItem):
    i: int
    special: bool
    joined: bool
    bytes: str | None


class PartResponse(ApiModel):
    part: Part
    n_layers: int
    rows: int
    cols: int


class ShapeResponse(ApiModel):
    part: Part
    stage: str
    axes: str
    shape: list[int]


class NonFinite(ApiModel):
    part: Part | None
    layer: int | None
    stage: str
    count: int
    nan: int
    inf: int


class ClassProbability(ApiModel):
    label: str
    p: Number


class TraceResponse(ApiModel):
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
    parts: list[PartResponse]
    n_layers: int
    n_heads: int
    memory: int
    thumbs: dict[str, Array]
    entropy: dict[str, Array]
    previous: dict[str, Array]
    first: dict[str, Array]
    shapes: list[ShapeResponse]
    bits: Array | None
    characters: int | None
    mask_id: int | None
    probs: list[ClassProbability] | None
    nonfinite: list[NonFinite]
    truncated: bool
    settings: dict[str, Any]


class AttentionResponse(ApiModel):
    rows: int
    cols: int
    pooled: int
    values: Array
    min: float
    max: float


class Group(ApiModel):
    key_head: int
    of: int


class HeadResponse(ApiModel):
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


class QueryResponse(HeadResponse):
    i: int
    products: Array
    contributions: Array


class ProjectionResponse(ApiModel):
    x: Array
    w: Array
    products: Array
    b: Number
    value: Number
    turned: Number
    changed_by: list[Literal["norm", "rotation", "content_bias"]]


class LogitsResponse(ApiModel):
    i: int
    values: Array
    top: list[VocabularyItem]


class ProbeResponse(ApiModel):
    tokens: list[Token]
    edited_tokens: list[Token]
    i: int
    delta: Array
    max_before: Number
    max_after: Number


class PermuteResponse(ApiModel):
    tokens: list[Token]
    permutation: list[int]
    inputs: Array
    outputs: Array
    permuted_outputs: Array
    max_error: Number


class RunResponse(ApiModel):
    id: str
    name: str
    family: str | None
    step: int
    steps: int | None
    state: Literal["running", "silent", "ended"]
    reason: str | None
    quiet: float
    model: str | None


class Sample(ApiModel):
    step: int
    text: str


class Metrics(ApiModel):
    series: dict[str, list[list[Number]]]
    last: dict[str, Any] | None
    samples: list[Sample]
    next: str
    reset: bool


class SourceResponse(ApiModel):
    symbol: str
    file: str
    line: int
    text: str
    html: str


class Symbols(ApiModel):
    symbols: list[str]
    stages: dict[str, str]


class ResidualRow(ApiModel):
    layer: int
    stage: Literal["resid_pre", "resid_mid", "resid_cross", "resid_post"]


class ResidualResponse(ApiModel):
    part: Part
    norm: Literal["pre", "post"]
    rows: list[ResidualRow]
    norms: Array
    attn: Array
    mlp: Array
    cross: Array | None


class VectorsResponse(ApiModel):
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


class Candidate(VocabularyItem):
    p: Number


class Tracked(ApiModel):
    id: int
    p: Array
    rank: Array


class LensResponse(ApiModel):
    layers: int
    k: int
    tokens: list[list[list[Candidate]]]
    entropy: Array
    track: Tracked | None


class Completeness(ApiModel):
    total: Number
    sum: Number
    error: Number


class Pool(ApiModel):
    kind: str
    values: Array


class AttributeResponse(ApiModel):
    method: Literal["grad_x_input", "occlusion", "ig"]
    label: str
    probs: list[ClassProbability]
    tokens: list[Token]
    values: Array
    completeness: Completeness | None
    pool: Pool


class CorruptedToken(Token):
    fate: Literal["untouched", "mask", "random", "kept"]
    became: VocabularyItem | None


class MaskingShares(ApiModel):
    rate: float
    mask: float
    random: float
    kept: float


class CorruptResponse(ApiModel):
    tokens: list[CorruptedToken]
    seed: int
    policy: MaskingShares
    known: bool


class CodedToken(Token):
    bits: float
    start: int
    width: int
    words: int
    low: str
    range: str


class CodingResponse(ApiModel):
    tokens: list[CodedToken]
    precision: int
    bytes: int
    code_bytes: int
    xz_bytes: int


class Histogram(ApiModel):
    edges: list[float]
    counts: list[int]


class ScoreStatistics(ApiModel):
    histogram: Histogram
    sd: float
    largest: float
    entropy: float


class ScalingResponse(ApiModel):
    d: int
    n: int
    seed: int
    raw: ScoreStatistics
    scaled: ScoreStatistics


class PositionsResponse(ApiModel):
    kind: str
    n: int
    similarity: Array
    norms: Array


class PatternsResponse(ApiModel):
    kind: str
    n: int
    stride: int
    mask: Array
    edges: int
    causal_edges: int
    all_edges: int
    reach: Array
    counts: list[list[int]]


class MemoryResponse(ApiModel):
    segment: int
    memory: int
    layers: int
    segments: int
    reach: list[int]
    timeline: Array
    starts: list[int]


class CompareResponse(ApiModel):
    tokens: list[Token]
    output_tokens: list[Token]
    parts: list[Part]
    diff_thumbs: dict[str, Array]
    head_max: dict[str, Array]
    kl: Array
    max_abs: Number
    max_logit: Number


class BeamNode(ApiModel):
    id: int
    parent: int | None
    token: int | None
    display: str
    length: int
    log_probability: float
    total: float
    fate: Literal["kept", "finished", "outscored", "pruned", "open"]
    score: float | None
    rank: int | None


class BeamHypothesis(ApiModel):
    text: str
    score: float
    ended: bool


class BeamsResponse(ApiModel):
    nodes: list[BeamNode]
    hypotheses: list[BeamHypothesis]
