"""What a model is for: why this class, what was hidden, and how two models differ."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from clearformer.explore import attribution, compare, masking, position_similarity
from clearformer.explore.explorer import Here, as_json
from clearformer.explore.requests import AttributeAsked, CompareAsked, CorruptAsked
from clearformer.explore.responses import (
    AttributeTold,
    CompareTold,
    CorruptTold,
    PositionsTold,
)

router = APIRouter(prefix="/api")
Named = Annotated[str, Query(max_length=100)]


@router.post("/attribute", response_model=AttributeTold)
async def attribute(here: Here, asked: AttributeAsked) -> Response:
    return await here.tell_of_model(
        asked.model,
        asked.checkpoint,
        lambda o: attribution.attribute(o, asked.text, asked.method, asked.label, here.limits),
    )


@router.post("/corrupt", response_model=CorruptTold)
async def corrupt(here: Here, asked: CorruptAsked) -> Response:
    return await here.tell_of_model(
        asked.model,
        asked.checkpoint,
        lambda o: masking.corrupt(o, asked.text, asked.seed, here.limits),
    )


@router.post("/compare", response_model=CompareTold)
async def compared(here: Here, asked: CompareAsked) -> Response:
    a = await here.on_model(
        asked.a.model,
        asked.a.checkpoint,
        lambda o: compare.look(o, asked.text, None, here.limits),
    )
    b = await here.on_model(
        asked.b.model,
        asked.b.checkpoint,
        lambda o: compare.look(o, asked.text, a.target, here.limits),
    )
    return as_json(compare.compare(a, b))


@router.get("/positions", response_model=PositionsTold)
async def positions(here: Here, model: Named, checkpoint: Named | None = None) -> Response:
    return await here.tell_of_model(model, checkpoint, position_similarity.positions)
