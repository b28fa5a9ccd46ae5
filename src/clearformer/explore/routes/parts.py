"""Routes for the parts of a model: its plan, what flows through it, norms and hidden units."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from clearformer.explore import blueprint as plan
from clearformer.explore import feed_forward, norms
from clearformer.explore import part_responses as responses
from clearformer.explore.explorer import CurrentExplorer
from clearformer.explore.requests import Id, Index, Part
from clearformer.explore.routes.traces import TraceId

router = APIRouter(prefix="/api")
NormPlace = Literal["embedding", "attention", "cross", "mlp", "final"]


@router.get("/models/{id}/blueprint", response_model=responses.BlueprintResponse)
def blueprint(explorer: CurrentExplorer, id: Id) -> Any:
    return plan.blueprint(explorer.library.entry(id).config)


@router.get("/traces/{id}/flow", response_model=responses.FlowResponse)
async def flow(explorer: CurrentExplorer, id: TraceId) -> Response:
    return await explorer.trace_json(id, plan.flow)


@router.get("/traces/{id}/norm", response_model=responses.NormResponse)
async def norm(
    explorer: CurrentExplorer,
    id: TraceId,
    i: Index,
    which: NormPlace = "attention",
    layer: Index = 0,
    part: Part | None = None,
) -> Response:
    return await explorer.trace_json(id, lambda t: norms.norm(t, layer, i, which, part))


@router.get("/traces/{id}/mlp", response_model=responses.UnitsResponse)
async def units(
    explorer: CurrentExplorer,
    id: TraceId,
    layer: Index,
    i: Index,
    k: Annotated[int, Query(ge=1, le=100)] = 20,
    part: Part | None = None,
) -> Response:
    return await explorer.trace_json(id, lambda t: feed_forward.units(t, layer, i, k, part))


@router.get("/traces/{id}/unit", response_model=responses.UnitResponse)
async def unit(
    explorer: CurrentExplorer,
    id: TraceId,
    layer: Index,
    i: Index,
    j: Index,
    part: Part | None = None,
) -> Response:
    return await explorer.trace_json(id, lambda t: feed_forward.unit(t, layer, i, j, part))
