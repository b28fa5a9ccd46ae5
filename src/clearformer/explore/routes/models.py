"""What is there: the server itself, models, their parameters, and our own source."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import torch
from fastapi import APIRouter, Query

import clearformer
from clearformer.explore import about, source
from clearformer.explore.explorer import Here
from clearformer.explore.requests import Id
from clearformer.explore.responses import (
    Info,
    ModelTold,
    Parameters,
    SourceTold,
    Symbols,
)

router = APIRouter(prefix="/api")


@router.get("/info", response_model=Info)
async def info(here: Here) -> Any:
    return {
        "version": clearformer.__version__,
        "torch": torch.__version__,
        "device": "cpu",
        "limits": asdict(here.limits),
        "generating": len(here.generating),
        "problems": here.library.problems,
    }


@router.get("/models", response_model=list[ModelTold])
def models(here: Here) -> Any:
    return [about.model(entry) for entry in here.library.models()]


@router.get("/models/{id}/parameters", response_model=Parameters)
def parameters(here: Here, id: Id) -> Any:
    return about.parameters(here.library.entry(id))


@router.get("/source", response_model=SourceTold | Symbols)
def lines(symbol: Annotated[str | None, Query(max_length=100)] = None) -> Any:
    return source.symbols() if symbol is None else source.source(symbol)
