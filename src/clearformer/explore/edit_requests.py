"""Bodies of `POST /api/traces/{id}/edit`: what to change, and what it changed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from clearformer.explore.requests import ApiModel, Index, Number, Part, Text
from clearformer.explore.responses import Token

MAX_CHANGES = 1000
PatchedStage = Literal["resid_pre", "attn_out", "mlp_out", "head_out", "weights"]


class Component(ApiModel):
    """A feed-forward layer."""

    layer: Index
    part: Part | None = None


class HeadComponent(Component):
    """A head."""

    head: Index


class WeightSetting(HeadComponent):
    """One attention weight; the others of its row are scaled so that the row sums to 1."""

    i: Index
    j: Index
    weight: Annotated[float, Field(ge=0, le=1)]


class PatchedText(Component):
    """A value of another text, put in at one token or at all."""

    text: Text
    stage: PatchedStage = "resid_pre"
    head: Index | None = None
    i: Index | None = None


class EditRequest(ApiModel):
    heads_off: list[HeadComponent] = Field(default_factory=list, max_length=MAX_CHANGES)
    mlps_off: list[Component] = Field(default_factory=list, max_length=MAX_CHANGES)
    weights: list[WeightSetting] = Field(default_factory=list, max_length=MAX_CHANGES)
    patch: PatchedText | None = None
    i: Index = -1


class Changed(ApiModel):
    """A token or class with its probability before and after."""

    id: int
    text: str
    display: str
    before: Number
    after: Number


class EditResponse(ApiModel):
    i: int
    loss: list[Number] | None  # before and after, in nats for each token
    top: list[Changed]
    moved: Number  # total variation distance: the share of probability that moved
    tokens: list[Token] | None  # of the other text
