"""The route that computes a trace again with changes."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from clearformer.explore import edits
from clearformer.explore.edit_requests import EditRequest, EditResponse
from clearformer.explore.explorer import CurrentExplorer
from clearformer.explore.routes.traces import TraceId

router = APIRouter(prefix="/api")


@router.post("/traces/{id}/edit", response_model=EditResponse)
async def edit(explorer: CurrentExplorer, id: TraceId, request: EditRequest) -> Response:
    return await explorer.trace_json(
        id, lambda cached: edits.edited(cached, request, explorer.limits)
    )
