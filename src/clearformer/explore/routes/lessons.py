"""Routes for lessons that need no model; they run one after the other on a worker."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from clearformer.explore import lessons, responses
from clearformer.explore.explorer import CurrentExplorer

router = APIRouter(prefix="/api")


@router.get("/scaling", response_model=responses.ScalingResponse)
async def scaling(
    explorer: CurrentExplorer,
    d: Annotated[int, Query(ge=1, le=4096)] = 64,
    n: Annotated[int, Query(ge=2, le=256)] = 64,
    seed: Annotated[int, Query(ge=0, lt=2**31)] = 0,
) -> Response:
    return await explorer.lesson_json(lambda: lessons.scaling(d, n, seed))


@router.get("/patterns", response_model=responses.PatternsResponse)
async def patterns(
    explorer: CurrentExplorer,
    kind: Literal["full", "causal", "local", "strided", "fixed"] = "strided",
    n: Annotated[int, Query(ge=1, le=256)] = 64,
    stride: Annotated[int, Query(ge=1, le=256)] = 8,
    layers: Annotated[int, Query(ge=1, le=12)] = 2,
    summary: Annotated[int, Query(ge=1, le=256)] = 1,
) -> Response:
    return await explorer.lesson_json(lambda: lessons.patterns(kind, n, stride, layers, summary))


@router.get("/memory", response_model=responses.MemoryResponse)
async def memory(
    explorer: CurrentExplorer,
    segment: Annotated[int, Query(ge=1, le=64)] = 8,
    memory: Annotated[int, Query(ge=0, le=128)] = 8,
    layers: Annotated[int, Query(ge=1, le=8)] = 3,
    segments: Annotated[int, Query(ge=1, le=16)] = 5,
) -> Response:
    return await explorer.lesson_json(lambda: lessons.memory(segment, memory, layers, segments))
