"""A text as it is written, one event for each token."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter
from fastapi.sse import format_sse_event
from starlette.responses import StreamingResponse

from clearformer.explore.errors import Problem
from clearformer.explore.explorer import Explorer, Here
from clearformer.explore.jobs import Worker
from clearformer.explore.schemas import GenerateAsked
from clearformer.explore.writing import Text

router = APIRouter(prefix="/api")
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}
}


class EventStream(StreamingResponse):
    media_type = "text/event-stream"


def event(name: str, data: dict[str, Any], id: str | None = None) -> bytes:
    return format_sse_event(event=name, data_str=json.dumps(data), id=id)


@router.post("/generate", response_class=EventStream, responses=EVENTS)
async def generate(here: Here, asked: GenerateAsked) -> EventStream:
    # What is wrong with the request is told before the stream begins.
    text = await here.on_model(
        asked.model, asked.checkpoint, lambda opened: Text(opened, asked, here.limits)
    )
    return EventStream(_events(here, here.library.entry(asked.model).worker, text))


async def _events(here: Explorer, worker: Worker, text: Text) -> AsyncIterator[bytes]:
    """Each token is a call of its own, so that others are answered between two of them."""
    here.generating.add(text)
    try:
        while not here.closing and (token := await worker.run(text.next_token)) is not None:
            yield event("token", token)
        yield event("done", {"reason": text.reason})
    except Problem as problem:
        yield event("error", problem.body["error"])
    except ValueError as problem:
        yield event("error", {"code": "invalid", "message": str(problem)})
    finally:
        here.generating.discard(text)
        worker.afterwards(text.close)
