"""The stream through the layers: lengths, vectors, the lens, hidden units."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from clearformer.explore import lens as looking
from clearformer.explore.errors import bad_field
from clearformer.explore.explorer import Here
from clearformer.explore.requests import Part
from clearformer.explore.requests import Place as At
from clearformer.explore.responses import (
    LensTold,
    ResidualTold,
    UnitsTold,
    VectorsTold,
)
from clearformer.explore.routes.traces import TraceId

router = APIRouter(prefix="/api/traces")


@router.get("/{id}/residual", response_model=ResidualTold | VectorsTold)
async def residual(
    here: Here, id: TraceId, layer: At | None = None, i: At | None = None, part: Part | None = None
) -> Response:
    if layer is None and i is None:
        return await here.tell_of_trace(id, lambda kept: looking.residual(kept, part))
    if layer is None or i is None:
        raise bad_field("layer", "give both layer and i, or neither")
    return await here.tell_of_trace(id, lambda kept: looking.vectors(kept, layer, i, part))


@router.get("/{id}/lens", response_model=LensTold)
async def lens(
    here: Here,
    id: TraceId,
    k: Annotated[int, Query(ge=1, le=50)] = 5,
    track: At | None = None,
) -> Response:
    return await here.tell_of_trace(id, lambda kept: looking.lens(kept, k, track))


@router.get("/{id}/mlp", response_model=UnitsTold)
async def units(
    here: Here, id: TraceId, layer: At, i: At, k: Annotated[int, Query(ge=1, le=100)] = 20
) -> Response:
    return await here.tell_of_trace(id, lambda kept: looking.units(kept, layer, i, k))
