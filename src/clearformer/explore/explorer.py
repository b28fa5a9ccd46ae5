"""State shared by all routes: the models, the cached traces, the limits, the open streams."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar, cast

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from clearformer.explore.library import Library, LoadedModel
from clearformer.explore.limits import MAX_EXPORTS, MAX_STREAMS, Limits
from clearformer.explore.model_entry import ModelEntry
from clearformer.explore.requests import ModelRequest
from clearformer.explore.trace_cache import CachedTrace, TraceCache
from clearformer.explore.worker import Worker
from clearformer.http_server.concurrency_limit import ConcurrencyLimit

Result = TypeVar("Result")


@dataclass
class Explorer:
    """The state of a server."""

    library: Library
    limits: Limits = Limits()
    traces: TraceCache = field(default_factory=TraceCache)
    generating: set[Any] = field(default_factory=set)
    lessons: Worker = field(default_factory=lambda: Worker("lessons", "lesson"))
    closing: bool = False  # open streams end when it is set
    exports: ConcurrencyLimit = field(
        default_factory=lambda: ConcurrencyLimit(MAX_EXPORTS, "exports are running")
    )
    streams: ConcurrencyLimit = field(
        default_factory=lambda: ConcurrencyLimit(MAX_STREAMS, "event streams are open")
    )

    async def run_on_model(
        self, request: ModelRequest, call: Callable[[LoadedModel], Result]
    ) -> Result:
        """Run a call on a model's worker; the model is loaded first if necessary."""
        # In a thread: it reads files, and must not block the event loop.
        entry, checkpoint = await run_in_threadpool(self._resolve, request)
        return await entry.worker.run(lambda: call(self.library.load(entry, checkpoint)))

    def _resolve(self, request: ModelRequest) -> tuple[ModelEntry, str]:
        entry = self.library.entry(request.model)
        return entry, self.library.checkpoint(entry, request.checkpoint)

    async def model_json(
        self, request: ModelRequest, call: Callable[[LoadedModel], Any]
    ) -> Response:
        """The result of a call on a model, as JSON."""
        return await self.run_on_model(request, lambda loaded: json_response(call(loaded)))

    async def trace_json(self, id: str, call: Callable[[CachedTrace], Any]) -> Response:
        """The result of a call on a cached trace, as JSON."""
        cached = self.traces.get(id)

        def call_and_evict() -> Response:
            response = json_response(call(cached))
            self.traces.evict()
            return response

        return await cached.loaded.entry.worker.run(call_and_evict)

    async def lesson_json(self, call: Callable[[], Any]) -> Response:
        """The result of a call that needs no model, as JSON; such calls do not overlap either."""
        return await self.lessons.run(lambda: json_response(call()))


def json_response(value: Any) -> Response:
    """A JSON response, serialized by the calling thread to keep the event loop free.

    It therefore bypasses the response model of its route; tests check that it conforms.
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Response(text, media_type="application/json")


def current_explorer(request: Request) -> Explorer:
    return cast(Explorer, request.app.state.explorer)


CurrentExplorer = Annotated[Explorer, Depends(current_explorer)]
