"""Route for generated text, one event for each token."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter
from fastapi.sse import format_sse_event
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from clearformer.explore.explorer import CurrentExplorer, Explorer
from clearformer.explore.generation import GeneratedText
from clearformer.explore.requests import GenerateRequest
from clearformer.http_server.concurrency_limit import ConcurrencyLimit
from clearformer.http_server.errors import Problem
from clearformer.http_server.gate import error_response

router = APIRouter(prefix="/api")
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}
}


class EventStream(StreamingResponse):
    """Server-sent events, within the limit on open streams."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], limit: ConcurrencyLimit) -> None:
        super().__init__(events)
        self.limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self.limit.require()
        except Problem as problem:
            await error_response(problem)(scope, receive, send)
            return
        with self.limit.acquire():
            await super().__call__(scope, receive, send)


def event(name: str, data: dict[str, Any], id: str | None = None) -> bytes:
    return format_sse_event(event=name, data_str=json.dumps(data), id=id)


@router.post("/generate", status_code=200, response_class=EventStream, responses=EVENTS)
async def generate(explorer: CurrentExplorer, request: GenerateRequest) -> EventStream:
    # Errors in the request are reported before the stream begins.
    explorer.streams.require()
    text = await explorer.run_on_model(
        request, lambda loaded: GeneratedText(loaded, request, explorer.limits)
    )
    return EventStream(_events(explorer, text), explorer.streams)


async def _events(explorer: Explorer, text: GeneratedText) -> AsyncIterator[bytes]:
    """Each token is a separate call, so that other requests run between two of them."""
    worker = text.loaded.entry.worker
    explorer.generating.add(text)
    try:
        while not explorer.closing and (token := await worker.run(text.next_token)) is not None:
            yield event("token", token)
        yield event("done", {"reason": text.reason})
    except Problem as problem:
        yield event("error", problem.body["error"])
    except ValueError as problem:
        yield event("error", {"code": "invalid", "message": str(problem)})
    finally:
        explorer.generating.discard(text)
        worker.submit_always(text.close)
