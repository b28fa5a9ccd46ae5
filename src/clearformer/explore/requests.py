"""Request bodies and parameters as types: validation and OpenAPI are derived from them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from clearformer.explore.limits import (
    MAX_EXPORTED,
    MAX_NEW_TOKENS,
    MAX_SENTENCES,
    MAX_TEXT,
    MAX_TOKENS,
)

Mask = Literal["model", "none", "causal"]
Part = Literal["self", "encoder", "decoder", "cross"]
Stage = Literal["scores_raw", "scores_scaled", "bias", "scores_masked", "weights"]
Number = float | Literal["nan", "inf", "-inf"]
# Well above the limit, so that the error for a longer text can name the limit and give a hint.
Text = Annotated[str, Field(max_length=20 * MAX_TEXT)]
Id = Annotated[str, Field(max_length=100)]
Index = Annotated[int, Field(ge=-(2**31), lt=2**31)]
Ids = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=16 * MAX_TOKENS)]


class ApiModel(BaseModel):
    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings")


class EmptyRequest(ApiModel):
    """The body of a POST without parameters."""


class ModelRequest(ApiModel):
    model: Id
    checkpoint: Id | None = None


class TextRequest(ModelRequest):
    text: Text


class TraceRequest(ModelRequest):
    text: Text | None = None
    tokens: Ids | None = None
    continuation: Ids = []  # tokens after the text, such as generated ones
    target: Text | None = None
    target_tokens: Ids | None = None
    mask_at: Ids = []
    mask: Mask = "model"
    positions: bool = True
    pad_to: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    permutation: Ids | None = None


class Edit(ApiModel):
    i: Index
    text: Annotated[str, Field(min_length=1, max_length=200)]


class ProbeRequest(TextRequest):
    edit: Edit
    mask: Mask = "model"


class PermuteRequest(TextRequest):
    permutation: Ids
    positions: bool = False
    mask: Mask = "none"


class GenerateRequest(ModelRequest):
    prompt: Text = ""
    max_new_tokens: Annotated[int, Field(ge=1, le=MAX_NEW_TOKENS)] = 50
    temperature: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 0.8
    top_k: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    forced: Annotated[Ids, Field(max_length=MAX_NEW_TOKENS)] = []
    report_from: Annotated[int, Field(ge=0)] | None = None  # forced tokens to report as well
    logits: bool = False  # whether to report the logits of new tokens


class MapRequest(TextRequest):
    """A map of embeddings on the axes of one checkpoint; of the tokens, those of the text."""

    kind: Literal["tokens", "positions", "sentences"] = "tokens"
    texts: Annotated[list[Text], Field(max_length=MAX_SENTENCES)] = []
    part: Literal["self", "encoder", "decoder"] | None = None
    axes: Id | None = None  # a checkpoint; None: the shown one


class NeighboursRequest(MapRequest):
    index: Index
    count: Annotated[int, Field(ge=1, le=50)] = 10


class BeamsRequest(TextRequest):
    """A beam search that is shown as a tree."""

    beam: Annotated[int, Field(ge=2, le=8)] = 3
    max_tokens: Annotated[int, Field(ge=1, le=40)] = 8
    length_penalty: Annotated[float, Field(ge=-10, le=10, allow_inf_nan=False)] = 1.0


class AttributeRequest(TextRequest):
    method: Literal["grad_x_input", "occlusion", "ig"] = "ig"
    label: Annotated[int, Field(ge=0, lt=2**31)] | str | None = None


class CorruptRequest(TextRequest):
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


class CompareRequest(ApiModel):
    a: ModelRequest
    b: ModelRequest
    text: Text


class ExportedRequest(ApiModel):
    """A request whose response an exported page contains."""

    path: Annotated[str, Field(pattern=r"^/api/", max_length=500)]
    body: dict[str, Any] | None = None
    # Under which the page looks it up; it includes the body.
    key: Annotated[str, Field(max_length=40 * MAX_TEXT)] | None = None
    optional: bool = False  # left out if the file would be too large


class ExportRequest(ApiModel):
    view: Annotated[str, Field(pattern=r"^[a-z]{1,20}$")]
    state: dict[str, Any] = {}
    requests: Annotated[list[str | ExportedRequest], Field(max_length=MAX_EXPORTED)] = []
    responses: dict[str, Any] = {}
