"""Routes for maps of embeddings: the points, and the neighbours of one."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from clearformer.explore import map_responses as responses
from clearformer.explore import map_views
from clearformer.explore.explorer import CurrentExplorer, Explorer
from clearformer.explore.requests import MapRequest, ModelRequest, NeighboursRequest

router = APIRouter(prefix="/api")


@router.post("/map", response_model=responses.MapResponse)
async def points(explorer: CurrentExplorer, request: MapRequest) -> Response:
    reference = await _reference(explorer, request)
    return await explorer.model_json(
        request, lambda loaded: map_views.points(loaded, request, reference, explorer.limits)
    )


@router.post("/neighbours", response_model=responses.NeighboursResponse)
async def neighbours(explorer: CurrentExplorer, request: NeighboursRequest) -> Response:
    reference = await _reference(explorer, request)
    return await explorer.model_json(
        request, lambda loaded: map_views.neighbours(loaded, request, reference, explorer.limits)
    )


async def _reference(explorer: Explorer, request: MapRequest) -> map_views.Reference | None:
    """The axes of another checkpoint of the same model, or of this one."""
    of = ModelRequest(model=request.model, checkpoint=request.axes or request.checkpoint)
    return await explorer.run_on_model(
        of, lambda loaded: map_views.reference(loaded, request, explorer.limits)
    )
