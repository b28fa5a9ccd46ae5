"""Routes for the server's info, the models, their parameters, and source code."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from fastapi import APIRouter, Query

import clearformer
from clearformer.explore import model_info, responses, source_code
from clearformer.explore.explorer import CurrentExplorer
from clearformer.explore.requests import Id

router = APIRouter(prefix="/api")


@router.get("/info", response_model=responses.Info)
async def info(explorer: CurrentExplorer) -> Any:
    return {
        "version": clearformer.__version__,
        "torch": torch.__version__,
        "device": "cpu",
        "limits": explorer.limits,
        "generating": len(explorer.generating),
        "problems": explorer.library.problems,
    }


@router.get("/models", response_model=list[responses.ModelResponse])
def models(explorer: CurrentExplorer) -> Any:
    return [model_info.model_info(entry) for entry in explorer.library.models()]


@router.get("/models/{id}/parameters", response_model=responses.Parameters)
def parameters(explorer: CurrentExplorer, id: Id) -> Any:
    return model_info.parameters(explorer.library.entry(id))


@router.get("/source", response_model=responses.SourceResponse | responses.Symbols)
def source(symbol: Annotated[str | None, Query(max_length=100)] = None) -> Any:
    return source_code.symbols() if symbol is None else source_code.source(symbol)
