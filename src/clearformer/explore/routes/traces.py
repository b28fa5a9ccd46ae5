"""A text in a model: the overview, then one head, one query, one component, one place."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from starlette.responses import Response

from clearformer.explore import experiments, views
from clearformer.explore.explorer import Explorer, Here
from clearformer.explore.inputs import (
    masked,
    own_ids,
    own_target,
    permuted,
    require_ids,
    require_room,
)
from clearformer.explore.library import Opened
from clearformer.explore.requests import (
    Part,
    PermuteAsked,
    ProbeAsked,
    Stage,
    TraceAsked,
)
from clearformer.explore.requests import Place as At
from clearformer.explore.responses import (
    AttentionTold,
    HeadTold,
    LogitsTold,
    PermuteTold,
    ProbeTold,
    ProjectionTold,
    QueryTold,
    TraceTold,
)

router = APIRouter(prefix="/api")
TraceId = Annotated[str, Path(max_length=40)]


@router.post("/traces", response_model=TraceTold)
async def trace(here: Here, asked: TraceAsked) -> Response:
    return await here.tell_of_model(
        asked.model, asked.checkpoint, lambda o: _traced(here, o, asked)
    )


def _traced(here: Explorer, opened: Opened, asked: TraceAsked) -> dict[str, Any]:
    tokens: Any = own_ids(opened, asked.text, asked.tokens, here.limits)
    if asked.mask_at:
        tokens = masked(opened, tokens, asked.mask_at)
    if asked.permutation is not None:
        tokens = permuted(tokens, asked.permutation)
    if "translate" in opened.config.verbs:
        if asked.target_tokens is not None:
            target = require_ids(opened, asked.target_tokens, "target_tokens")
            require_room(opened, len(target), here.limits)
        else:
            target = own_target(opened, tokens, asked.target, here.limits)
        tokens = (tokens, target)
    if asked.pad_to is not None:
        require_room(opened, asked.pad_to, here.limits)
    settings = {"mask": asked.mask, "positions": asked.positions, "pad_to": asked.pad_to}
    return views.overview(here.traces.make(opened, tokens, settings))


@router.get("/traces/{id}", response_model=TraceTold)
async def again(here: Here, id: TraceId) -> Response:
    return await here.tell_of_trace(id, views.overview)


@router.get("/traces/{id}/attention", response_model=AttentionTold)
async def attention(
    here: Here, id: TraceId, layer: At, head: At, stage: Stage = "weights", part: Part | None = None
) -> Response:
    return await here.tell_of_trace(
        id, lambda kept: views.attention(kept, layer, head, stage, part)
    )


@router.get("/traces/{id}/query", response_model=QueryTold)
async def query(
    here: Here, id: TraceId, layer: At, head: At, i: At, part: Part | None = None
) -> Response:
    return await here.tell_of_trace(id, lambda kept: views.query(kept, layer, head, i, part))


@router.get("/traces/{id}/head", response_model=HeadTold)
async def whole_head(
    here: Here, id: TraceId, layer: At, head: At, part: Part | None = None
) -> Response:
    return await here.tell_of_trace(id, lambda kept: views.whole_head(kept, layer, head, part))


@router.get("/traces/{id}/projection", response_model=ProjectionTold)
async def projection(
    here: Here,
    id: TraceId,
    layer: At,
    head: At,
    i: At,
    which: Literal["q", "k", "v"],
    d: At,
    part: Part | None = None,
) -> Response:
    return await here.tell_of_trace(
        id, lambda kept: views.projection(kept, layer, head, i, which, d, part)
    )


@router.get("/traces/{id}/logits", response_model=LogitsTold)
async def logits(here: Here, id: TraceId, i: At = -1) -> Response:
    return await here.tell_of_trace(id, lambda kept: views.logits(kept, i))


@router.post("/probe", response_model=ProbeTold)
async def probe(here: Here, asked: ProbeAsked) -> Response:
    edit = asked.edit
    return await here.tell_of_model(
        asked.model,
        asked.checkpoint,
        lambda o: experiments.probe(o, asked.text, edit.i, edit.text, asked.mask, here.limits),
    )


@router.post("/permute", response_model=PermuteTold)
async def permute(here: Here, asked: PermuteAsked) -> Response:
    return await here.tell_of_model(
        asked.model,
        asked.checkpoint,
        lambda o: experiments.permute(
            o, asked.text, asked.permutation, asked.positions, asked.mask, here.limits
        ),
    )
