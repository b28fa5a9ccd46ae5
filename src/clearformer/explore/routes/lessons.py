"""Lessons that need no model."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from clearformer.explore import lessons
from clearformer.explore.answers import MemoryTold, PatternsTold, ScalingTold

router = APIRouter(prefix="/api")


@router.get("/scaling", response_model=ScalingTold)
def scaling(
    d: Annotated[int, Query(ge=1, le=4096)] = 64,
    n: Annotated[int, Query(ge=2, le=256)] = 64,
    seed: Annotated[int, Query(ge=0, lt=2**31)] = 0,
) -> Any:
    return lessons.scaling(d, n, seed)


@router.get("/patterns", response_model=PatternsTold)
def patterns(
    kind: Literal["full", "causal", "local", "strided", "fixed"] = "strided",
    n: Annotated[int, Query(ge=1, le=256)] = 64,
    stride: Annotated[int, Query(ge=1, le=256)] = 8,
    layers: Annotated[int, Query(ge=1, le=12)] = 2,
    summary: Annotated[int, Query(ge=1, le=256)] = 1,
) -> Any:
    return lessons.patterns(kind, n, stride, layers, summary)


@router.get("/memory", response_model=MemoryTold)
def memory(
    segment: Annotated[int, Query(ge=1, le=64)] = 8,
    memory: Annotated[int, Query(ge=0, le=128)] = 8,
    layers: Annotated[int, Query(ge=1, le=8)] = 3,
    segments: Annotated[int, Query(ge=1, le=16)] = 5,
) -> Any:
    return lessons.memory(segment, memory, layers, segments)
