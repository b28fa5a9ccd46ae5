"""Routes for tasks: attribution, masking, coding, comparison of two models, position vectors."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from clearformer.explore import attribution, beam_tree, masking, position_similarity, responses
from clearformer.explore import coding as coded
from clearformer.explore import compare as comparison
from clearformer.explore.explorer import CurrentExplorer, json_response
from clearformer.explore.requests import (
    AttributeRequest,
    BeamsRequest,
    CompareRequest,
    CorruptRequest,
    ModelRequest,
    TextRequest,
)

router = APIRouter(prefix="/api")
Name = Annotated[str, Query(max_length=100)]


@router.post("/attribute", response_model=responses.AttributeResponse)
async def attribute(explorer: CurrentExplorer, request: AttributeRequest) -> Response:
    return await explorer.model_json(
        request, lambda loaded: attribution.attribute(loaded, request, explorer.limits)
    )


@router.post("/corrupt", response_model=responses.CorruptResponse)
async def corrupt(explorer: CurrentExplorer, request: CorruptRequest) -> Response:
    return await explorer.model_json(
        request, lambda loaded: masking.corrupt(loaded, request.text, request.seed, explorer.limits)
    )


@router.post("/coding", response_model=responses.CodingResponse)
async def coding(explorer: CurrentExplorer, request: TextRequest) -> Response:
    return await explorer.model_json(
        request, lambda loaded: coded.coding(loaded, request.text, explorer.limits)
    )


@router.post("/beams", response_model=responses.BeamsResponse)
async def beams(explorer: CurrentExplorer, request: BeamsRequest) -> Response:
    return await explorer.model_json(
        request, lambda loaded: beam_tree.view(loaded, request, explorer.limits)
    )


@router.post("/compare", response_model=responses.CompareResponse)
async def compare(explorer: CurrentExplorer, request: CompareRequest) -> Response:
    text, limits = request.text, explorer.limits
    a = await explorer.run_on_model(
        request.a, lambda loaded: comparison.trace_side(loaded, text, None, limits)
    )
    b = await explorer.run_on_model(
        request.b, lambda loaded: comparison.trace_side(loaded, text, a.target, limits)
    )
    return json_response(comparison.compare(a, b))


@router.get("/positions", response_model=responses.PositionsResponse)
async def positions(
    explorer: CurrentExplorer, model: Name, checkpoint: Name | None = None
) -> Response:
    request = ModelRequest(model=model, checkpoint=checkpoint)
    return await explorer.model_json(request, position_similarity.positions)
