"""What pages ask, as types: validation and OpenAPI come from them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from clearformer.explore.limits import LONGEST_TEXT, MOST_NEW_TOKENS, MOST_TOKENS

Mask = Literal["model", "none", "causal"]
Part = Literal["self", "encoder", "decoder", "cross"]
Stage = Literal["scores_raw", "scores_scaled", "bias", "scores_masked", "weights"]
Number = float | Literal["nan", "inf", "-inf"]
# A little above the limit, so that what is too long is told with the limit and a hint.
Text = Annotated[str, Field(max_length=20 * LONGEST_TEXT)]
Id = Annotated[str, Field(max_length=100)]
Place = Annotated[int, Field(ge=-(2**31), lt=2**31)]
Ids = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=16 * MOST_TOKENS)]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings")


class TraceAsked(Model):
    model: Id
    checkpoint: Id | None = None
    text: Text | None = None
    tokens: Ids | None = None
    target: Text | None = None
    target_tokens: Ids | None = None
    mask_at: Ids = []
    mask: Mask = "model"
    positions: bool = True
    pad_to: Annotated[int, Field(ge=1, le=MOST_TOKENS)] | None = None
    permutation: Ids | None = None


class Edit(Model):
    i: Place
    text: Annotated[str, Field(min_length=1, max_length=200)]


class ProbeAsked(Model):
    model: Id
    checkpoint: Id | None = None
    text: Text
    edit: Edit
    mask: Mask = "model"


class PermuteAsked(Model):
    model: Id
    checkpoint: Id | None = None
    text: Text
    permutation: Ids
    positions: bool = False
    mask: Mask = "none"


class GenerateAsked(Model):
    model: Id
    checkpoint: Id | None = None
    prompt: Text = ""
    max_new_tokens: Annotated[int, Field(ge=1, le=MOST_NEW_TOKENS)] = 50
    temperature: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 0.8
    top_k: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    forced: Annotated[Ids, Field(max_length=MOST_NEW_TOKENS)] = []


class ExportAsked(Model):
    view: Annotated[str, Field(pattern=r"^[a-z]{1,20}$")]
    state: dict[str, Any] = {}
    requests: Annotated[list[str | Replayed], Field(max_length=100)] = []
    responses: dict[str, Any] = {}


class Replayed(Model):
    """A request whose answer an exported page is to hold."""

    path: Annotated[str, Field(pattern=r"^/api/", max_length=500)]
    body: dict[str, Any] | None = None
    key: Annotated[str, Field(max_length=600)] | None = None  # under which it is found


class Nothing(Model):
    """The body of a request that needs none."""


class AttributeAsked(Model):
    model: Id
    checkpoint: Id | None = None
    text: Text
    method: Literal["grad_x_input", "occlusion", "ig"] = "ig"
    label: Annotated[int, Field(ge=0, lt=2**31)] | str | None = None


class CorruptAsked(Model):
    model: Id
    checkpoint: Id | None = None
    text: Text
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


class Which(Model):
    model: Id
    checkpoint: Id | None = None


class CompareAsked(Model):
    a: Which
    b: Which
    text: Text
