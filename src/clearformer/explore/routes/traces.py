"""Routes for traces: the overview, a head, a query, a projection, logits, and experiments."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from starlette.responses import Response

from clearformer.explore import experiments, inputs, responses, views
from clearformer.explore.explorer import CurrentExplorer, Explorer
from clearformer.explore.library import LoadedModel
from clearformer.explore.requests import (
    Index,
    Part,
    PermuteRequest,
    ProbeRequest,
    Stage,
    TraceRequest,
)

router = APIRouter(prefix="/api")
TraceId = Annotated[str, Path(max_length=40)]


@router.post("/traces", response_model=responses.TraceResponse)
async def trace(explorer: CurrentExplorer, request: TraceRequest) -> Response:
    return await explorer.model_json(request, lambda loaded: _trace(explorer, loaded, request))


def _trace(explorer: Explorer, loaded: LoadedModel, request: TraceRequest) -> dict[str, Any]:
    limits = explorer.limits
    tokens: Any = inputs.input_ids(loaded, request.text, request.tokens, limits)
    if request.continuation:
        tokens += inputs.require_token_ids(loaded, request.continuation, "continuation")
        inputs.require_length(loaded, len(tokens), limits)
    if request.mask_at:
        tokens = inputs.masked(loaded, tokens, request.mask_at)
    if request.permutation is not None:
        tokens = inputs.permuted(tokens, request.permutation)
    if "translate" in loaded.config.verbs:
        if request.target_tokens is not None:
            target = inputs.require_token_ids(loaded, request.target_tokens, "target_tokens")
            inputs.require_length(loaded, len(target), limits)
        else:
            target = inputs.decoder_input_ids(loaded, tokens, request.target, limits)
        tokens = (tokens, target)
    if request.pad_to is not None:
        inputs.require_length(loaded, request.pad_to, limits)
    settings = {"mask": request.mask, "positions": request.positions, "pad_to": request.pad_to}
    return views.overview(explorer.traces.add(loaded, tokens, settings))


@router.get("/traces/{id}", response_model=responses.TraceResponse)
async def cached_trace(explorer: CurrentExplorer, id: TraceId) -> Response:
    return await explorer.trace_json(id, views.overview)


@router.get("/traces/{id}/attention", response_model=responses.AttentionResponse)
async def attention(
    explorer: CurrentExplorer,
    id: TraceId,
    layer: Index,
    head: Index,
    stage: Stage = "weights",
    part: Part | None = None,
) -> Response:
    return await explorer.trace_json(id, lambda t: views.attention(t, layer, head, stage, part))


@router.get("/traces/{id}/query", response_model=responses.QueryResponse)
async def query(
    explorer: CurrentExplorer,
    id: TraceId,
    layer: Index,
    head: Index,
    i: Index,
    part: Part | None = None,
) -> Response:
    return await explorer.trace_json(id, lambda t: views.query(t, layer, head, i, part))


@router.get("/traces/{id}/head", response_model=responses.HeadResponse)
async def whole_head(
    explorer: CurrentExplorer, id: TraceId, layer: Index, head: Index, part: Part | None = None
) -> Response:
    return await explorer.trace_json(id, lambda t: views.whole_head(t, layer, head, part))


@router.get("/traces/{id}/projection", response_model=responses.ProjectionResponse)
async def projection(
    explorer: CurrentExplorer,
    id: TraceId,
    layer: Index,
    head: Index,
    i: Index,
    which: Literal["q", "k", "v"],
    d: Index,
    part: Part | None = None,
) -> Response:
    return await explorer.trace_json(
        id, lambda t: views.projection(t, layer, head, i, which, d, part)
    )


@router.get("/traces/{id}/logits", response_model=responses.LogitsResponse)
async def logits(explorer: CurrentExplorer, id: TraceId, i: Index = -1) -> Response:
    return await explorer.trace_json(id, lambda t: views.logits(t, i))


@router.post("/probe", response_model=responses.ProbeResponse)
async def probe(explorer: CurrentExplorer, request: ProbeRequest) -> Response:
    return await explorer.model_json(
        request, lambda loaded: experiments.probe(loaded, request, explorer.limits)
    )


@router.post("/permute", response_model=responses.PermuteResponse)
async def permute(explorer: CurrentExplorer, request: PermuteRequest) -> Response:
    return await explorer.model_json(
        request, lambda loaded: experiments.permute(loaded, request, explorer.limits)
    )
