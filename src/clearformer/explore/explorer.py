"""What all routes share: the models, the traces that are kept, the limits, the texts that grow."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar, cast

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from clearformer.explore.entries import Entry
from clearformer.explore.jobs import Worker
from clearformer.explore.library import Library, Opened
from clearformer.explore.limits import EXPORTS, STREAMS, Limits
from clearformer.explore.slots import Slots
from clearformer.explore.trace_cache import Kept, KeptTraces

Result = TypeVar("Result")


@dataclass
class Explorer:
    """The state of a server."""

    library: Library
    limits: Limits = Limits()
    traces: KeptTraces = field(default_factory=KeptTraces)
    generating: set[Any] = field(default_factory=set)
    lessons: Worker = field(default_factory=lambda: Worker("lessons", "lesson"))
    closing: bool = False  # streams end by themselves
    exports: Slots = field(default_factory=lambda: Slots(EXPORTS, "files are being made"))
    streams: Slots = field(default_factory=lambda: Slots(STREAMS, "streams of events are open"))

    async def on_model(
        self, model: str, checkpoint: str | None, call: Callable[[Opened], Result]
    ) -> Result:
        """Run a call on a model's own thread, opening the model first if need be."""
        # In a thread: it looks at files, and the loop serves everybody else meanwhile.
        entry, chosen = await run_in_threadpool(self._chosen, model, checkpoint)
        return await entry.worker.run(lambda: call(self.library.open(entry, chosen)))

    def _chosen(self, model: str, checkpoint: str | None) -> tuple[Entry, str]:
        entry = self.library.entry(model)
        return entry, self.library.checkpoint(entry, checkpoint)

    async def on_trace(self, id: str, call: Callable[[Kept], Result]) -> Result:
        """The same for a trace that is kept."""
        kept = self.traces.find(id)

        def calling() -> Result:
            result = call(kept)
            self.traces.tidy()
            return result

        return await kept.opened.entry.worker.run(calling)

    async def tell_of_model(
        self, model: str, checkpoint: str | None, call: Callable[[Opened], Any]
    ) -> Response:
        """What a call on a model gives, as JSON."""
        return await self.on_model(model, checkpoint, lambda opened: as_json(call(opened)))

    async def tell_of_trace(self, id: str, call: Callable[[Kept], Any]) -> Response:
        """The same for a trace that is kept."""
        return await self.on_trace(id, lambda kept: as_json(call(kept)))

    async def tell_of_lesson(self, call: Callable[[], Any]) -> Response:
        """What a call gives that needs no model, as JSON; one after the other, like all calls."""
        return await self.lessons.run(lambda: as_json(call()))


def as_json(value: Any) -> Response:
    """An answer, written where it was made: the loop that serves everybody is not to wait for it.

    So it does not pass through the schema of its route on the way; tests hold it to that.
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Response(text, media_type="application/json")


def of_request(request: Request) -> Explorer:
    return cast(Explorer, request.app.state.explorer)


Here = Annotated[Explorer, Depends(of_request)]
