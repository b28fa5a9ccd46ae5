"""A text as it is written, one event for each token."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter
from fastapi.sse import format_sse_event
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from clearformer.explore.errors import Problem
from clearformer.explore.explorer import Explorer, Here
from clearformer.explore.generation import Text
from clearformer.explore.jobs import Worker
from clearformer.explore.requests import GenerateAsked
from clearformer.explore.security import answer
from clearformer.explore.slots import Slots

router = APIRouter(prefix="/api")
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}
}


class EventStream(StreamingResponse):
    """Events as they come, as long as a slot is free for one more stream."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], slots: Slots) -> None:
        super().__init__(events)
        self.slots = slots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self.slots.require()
        except Problem as problem:
            await answer(problem)(scope, receive, send)
            return
        with self.slots.taken():
            await super().__call__(scope, receive, send)


def event(name: str, data: dict[str, Any], id: str | None = None) -> bytes:
    return format_sse_event(event=name, data_str=json.dumps(data), id=id)


@router.post("/generate", status_code=200, response_class=EventStream, responses=EVENTS)
async def generate(here: Here, asked: GenerateAsked) -> EventStream:
    # What is wrong with the request is told before the stream begins.
    here.streams.require()
    text = await here.on_model(
        asked.model, asked.checkpoint, lambda opened: Text(opened, asked, here.limits)
    )
    worker = text.opened.entry.worker
    return EventStream(_events(here, worker, text), here.streams)


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
