"""Response bodies about maps of embeddings."""

from __future__ import annotations

from typing import Literal

from clearformer.explore.requests import ApiModel
from clearformer.explore.responses import Array


class MapLabel(ApiModel):
    index: int
    display: str
    given: bool


class Map(ApiModel):
    points: Array
    shares: list[float]
    labels: list[MapLabel]
    total: int
    cut: int


class MapResponse(ApiModel):
    """`map` is None if the model has no such vectors."""

    kind: Literal["tokens", "positions", "sentences"]
    positions: str
    axes: str | None
    map: Map | None


class MapNeighbour(ApiModel):
    index: int
    display: str
    cosine: float


class NeighboursResponse(ApiModel):
    index: int
    display: str
    point: list[float]
    norm: float
    neighbours: list[MapNeighbour]
