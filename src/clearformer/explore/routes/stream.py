"""Routes for the residual stream and the logit lens."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from clearformer.explore import lens as stream
from clearformer.explore import responses
from clearformer.explore.explorer import CurrentExplorer
from clearformer.explore.requests import Index, Part
from clearformer.explore.routes.traces import TraceId
from clearformer.http_server.errors import bad_field

router = APIRouter(prefix="/api/traces")


@router.get("/{id}/residual", response_model=responses.ResidualResponse | responses.VectorsResponse)
async def residual(
    explorer: CurrentExplorer,
    id: TraceId,
    layer: Index | None = None,
    i: Index | None = None,
    part: Part | None = None,
) -> Response:
    if layer is None and i is None:
        return await explorer.trace_json(id, lambda trace: stream.residual(trace, part))
    if layer is None or i is None:
        raise bad_field("layer", "give both layer and i, or neither")
    return await explorer.trace_json(id, lambda trace: stream.vectors(trace, layer, i, part))


@router.get("/{id}/lens", response_model=responses.LensResponse)
async def lens(
    explorer: CurrentExplorer,
    id: TraceId,
    k: Annotated[int, Query(ge=1, le=50)] = 5,
    track: Index | None = None,
) -> Response:
    return await explorer.trace_json(id, lambda trace: stream.lens(trace, k, track))
