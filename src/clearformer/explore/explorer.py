"""What all routes share: the models, the traces that are kept, the limits, the texts that grow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar, cast

from fastapi import Depends, Request

from clearformer.explore.kept import Kept, KeptTraces
from clearformer.explore.library import Library, Opened
from clearformer.explore.limits import Limits

Result = TypeVar("Result")


@dataclass
class Explorer:
    """The state of a server."""

    library: Library
    limits: Limits = Limits()
    traces: KeptTraces = field(default_factory=KeptTraces)
    generating: set[Any] = field(default_factory=set)

    async def on_model(
        self, model: str, checkpoint: str | None, call: Callable[[Opened], Result]
    ) -> Result:
        """Run a call on a model's own thread, opening the model first if need be."""
        entry = self.library.entry(model)
        chosen = self.library.checkpoint(entry, checkpoint)
        return await entry.worker.run(lambda: call(self.library.open(entry, chosen)))

    async def on_trace(self, id: str, call: Callable[[Kept], Result]) -> Result:
        """The same for a trace that is kept."""
        kept = self.traces.find(id)

        def calling() -> Result:
            result = call(kept)
            self.traces.tidy()
            return result

        return await kept.opened.entry.worker.run(calling)


def of_request(request: Request) -> Explorer:
    return cast(Explorer, request.app.state.explorer)


Here = Annotated[Explorer, Depends(of_request)]
