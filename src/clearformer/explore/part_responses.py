"""Response bodies about the parts of a model: its plan, its norms, its hidden units."""

from __future__ import annotations

from typing import Literal

from clearformer.explore.requests import ApiModel, Number
from clearformer.explore.responses import Array, Token

NormKind = Literal["layer", "rms", "other"]


class Step(ApiModel):
    """A step of a block; which of the fields there are depends on its kind."""

    kind: Literal["norm", "attention", "mlp", "add"]
    which: Literal["attention", "cross", "mlp"] | None = None
    norm: NormKind | None = None
    part: Literal["self", "encoder", "decoder", "cross"] | None = None
    heads: int | None = None
    key_heads: int | None = None
    head_width: int | None = None
    pattern: str | None = None
    hidden: int | None = None
    gated: bool | None = None
    activation: str | None = None


class BlockPlan(ApiModel):
    layer: int
    steps: list[Step]


class EmbeddingPlan(ApiModel):
    shape: list[int]
    position: str
    added: bool
    segments: int | None
    pairs: int | None
    norm: NormKind | None


class StackPlan(ApiModel):
    part: Literal["self", "encoder", "decoder"]
    embedding: EmbeddingPlan
    blocks: list[BlockPlan]
    norm: NormKind | None


class HeadPlan(ApiModel):
    task: str
    outputs: int
    tied: bool


class BlueprintResponse(ApiModel):
    family: str
    residual: Literal["pre", "post"]
    width: int
    memory: int | None
    length: int
    stacks: list[StackPlan]
    head: HeadPlan


class StackFlow(ApiModel):
    part: str
    tokens: list[Token]
    summed: Array | None
    embedding: Array
    blocks: list[list[Array]]
    norm: Array


class Prediction(ApiModel):
    id: int | None = None
    display: str
    p: Number


class FlowResponse(ApiModel):
    components: int
    stacks: list[StackFlow]
    predictions: list[Prediction] | None


class NormResponse(ApiModel):
    layer: int
    i: int
    which: str
    kind: NormKind
    x: Array
    mean: Number | None = None
    variance: Number | None = None
    epsilon: float | None = None
    root: Number | None = None
    centred: Array | None = None
    normalized: Array | None = None
    weight: Array | None = None
    bias: Array | None = None
    output: Array


class Unit(ApiModel):
    j: int
    pre: Number
    activation: Number
    value: Number | None
    post: Number
    norm: Number
    share: Number


class UnitsResponse(ApiModel):
    layer: int
    i: int
    hidden: int
    gated: bool
    active: int
    units: list[Unit]
    values: Array
    pre: Array
    output: Array
    bias: Array | None


class Push(ApiModel):
    id: int
    display: str
    logit: Number


class Pushes(ApiModel):
    raised: list[Push]
    lowered: list[Push]


class UnitResponse(Unit):
    x: Array
    w: Array
    products: Array
    b: Number
    value_w: Array | None = None
    value_products: Array | None = None
    value_b: Number | None = None
    column: Array
    added: Array
    pushes: Pushes | None
