"""A trace inside a notebook: the explorer's own page, frozen, in a frame without a network.

An `<iframe srcdoc>` works without a kernel, survives conversion to HTML and cannot touch the
notebook around it.
"""

from __future__ import annotations

import asyncio
import html
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from clearformer.explore import asgi, export, views
from clearformer.explore.source import STAGES
from clearformer.explore.stages import KERNEL

if TYPE_CHECKING:
    from clearformer.explore.trace import Trace

HEIGHT = 720
# The lines behind the steps of the ladder.
SHOWN = tuple(dict.fromkeys(STAGES[name] for name in ("q", *KERNEL, "attn_out")))
Result = TypeVar("Result")


def frame(page: str) -> str:
    """A page as an element of another."""
    return (
        f'<iframe srcdoc="{html.escape(page)}" sandbox="allow-scripts" title="clearformer trace" '
        f'style="width:100%;height:{HEIGHT}px;border:0"></iframe>'
    )


def page(trace: Trace, layer: int, head: int, query: int | None) -> str:
    """The attention page of one trace as a file of its own."""
    from clearformer.explore.app import create_app
    from clearformer.explore.entries import Given
    from clearformer.explore.library import Library, Opened, slug
    from clearformer.explore.trace_cache import Kept

    subject = trace.subject
    if subject.config is None:
        raise ValueError(
            "this trace is of a bare model, whose settings nobody knows: trace what open_run "
            "gives, or clearformer.explore.subject.Subject(model, config, tokenizer)"
        )
    entry = Given(slug(subject.name), subject, subject.config)
    app = create_app(Library([], [entry]))
    given = trace.input
    opened = Opened(entry, "weights", subject)
    kept = app.state.explorer.traces.make(opened, given.unpadded(), trace.settings)
    assert isinstance(kept, Kept)
    part = kept.overview.parts[0]
    views.place(kept, layer, head, part)
    i = len(given.queries(part)) - 1 if query is None else query
    state = {"model": entry.id, "layer": layer, "head": head, "part": part, "query": i, "i": i,
             "trace": kept.id}  # fmt: skip
    whole = f"/api/traces/{kept.id}"
    requests: list[export.Request] = [
        (whole, None, "POST /api/traces"),
        ("/api/info", None, None),
        ("/api/models", None, None),
        ("/api/source", None, None),
        (f"/api/models/{entry.id}/parameters", None, None),
        (f"{whole}/head?head={head}&layer={layer}&part={part}", None, None),
        (f"{whole}/logits?i=-1", None, None),
        *((f"/api/source?symbol={symbol}", None, None) for symbol in SHOWN),
    ]

    async def ask(method: str, path: str, body: Any) -> bytes | None:
        return await asgi.ask(app, method, path, body)

    return _run(export.page(ask, "attention", state, requests, {}))


def _run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """The result of a coroutine, also where a loop is running already, as in a notebook."""
    found: list[Result] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(coroutine)))
    thread.start()
    thread.join()
    if not found:
        raise RuntimeError("the page could not be made")
    return found[0]
