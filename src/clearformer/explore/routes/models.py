"""Routes for the server's info, the models, their parameters, and source code."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from fastapi import APIRouter, Query
from starlette.responses import Response

import clearformer
from clearformer.explore import inputs, model_info, responses, source_code, token_display
from clearformer.explore.explorer import CurrentExplorer
from clearformer.explore.library import LoadedModel
from clearformer.explore.requests import Id, ModelRequest

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


@router.get("/models/{id}/tokens", response_model=list[responses.VocabularyItem])
async def tokens(
    explorer: CurrentExplorer,
    id: Id,
    ids: Annotated[str, Query(pattern=r"^\d{1,9}(,\d{1,9}){0,99}$")],
) -> Response:
    """Tokens of the vocabulary by their ids, separated by commas."""
    asked = [int(each) for each in ids.split(",")]

    def items(loaded: LoadedModel) -> list[dict[str, Any]]:
        known = inputs.require_token_ids(loaded, asked, "ids")
        return token_display.vocabulary_items(loaded.model, known)

    return await explorer.model_json(ModelRequest(model=id), items)


@router.get("/source", response_model=responses.SourceResponse | responses.Symbols)
def source(symbol: Annotated[str | None, Query(max_length=100)] = None) -> Any:
    return source_code.symbols() if symbol is None else source_code.source(symbol)
