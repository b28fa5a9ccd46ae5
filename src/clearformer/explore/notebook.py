"""Traces in a notebook: the explorer's page as a self-contained HTML frame.

An `<iframe srcdoc>` works without a kernel, survives conversion to HTML and cannot touch the
notebook around it.
"""

from __future__ import annotations

import asyncio
import html
import threading
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from clearformer.explore import export, in_process_client, views
from clearformer.explore.source_code import STAGES
from clearformer.explore.stages import KERNEL

if TYPE_CHECKING:
    from clearformer.explore.trace import Trace

HEIGHT = 720
# The source code of the stages.
SHOWN = tuple(dict.fromkeys(STAGES[name] for name in ("q", *KERNEL, "attn_out")))
Result = TypeVar("Result")


def frame(page: str) -> str:
    """A page as an element of another page."""
    return (
        f'<iframe srcdoc="{html.escape(page)}" sandbox="allow-scripts" title="clearformer trace" '
        f'style="width:100%;height:{HEIGHT}px;border:0"></iframe>'
    )


def page(trace: Trace, layer: int, head: int, query: int | None) -> str:
    """The attention page of one trace as a self-contained file."""
    from clearformer.explore.app import create_app
    from clearformer.explore.library import Library, LoadedModel, slug
    from clearformer.explore.model_entry import InMemoryEntry
    from clearformer.explore.trace_cache import CachedTrace

    model = trace.model
    if model.config is None:
        raise ValueError(
            "this trace is of a module without a config: trace the result of open_run, or "
            "clearformer.explore.traced_model.TracedModel(module, config, tokenizer)"
        )
    entry = InMemoryEntry(slug(model.name), model, model.config)
    app = create_app(Library([], [entry]))
    model_input = trace.input
    loaded = LoadedModel(entry, "weights", model)
    cached: CachedTrace = app.state.explorer.traces.add(
        loaded, model_input.unpadded(), trace.settings
    )
    part = cached.overview.parts[0]
    views.require_head(cached, layer, head, part)
    i = len(model_input.queries(part)) - 1 if query is None else query
    state = {"model": entry.id, "layer": layer, "head": head, "part": part, "query": i, "i": i,
             "trace": cached.id}  # fmt: skip
    trace_url = f"/api/traces/{cached.id}"
    requests: list[export.Request] = [
        export.Request(trace_url, key="POST /api/traces"),
        *(
            export.Request(path)
            for path in (
                "/api/info",
                "/api/models",
                "/api/source",
                f"/api/models/{entry.id}/parameters",
                _head(trace_url, layer, head, part),
                f"{trace_url}/logits?i=-1",
                *(f"/api/source?symbol={symbol}" for symbol in SHOWN),
            )
        ),
        *(
            export.Request(_head(trace_url, each_layer, each_head, each_part), optional=True)
            for each_part in cached.overview.parts
            for each_layer in cached.overview.layers(each_part)
            for each_head in range(model.config.heads)
            if (each_part, each_layer, each_head) != (part, layer, head)
        ),
    ]

    fetch = partial(in_process_client.request_json, app)
    return _run(export.page(fetch, "attention", state, requests, {}))


def _head(trace_url: str, layer: int, head: int, part: str) -> str:
    return f"{trace_url}/head?head={head}&layer={layer}&part={part}"


def _run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine, also where a loop is running already, as in a notebook."""
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(asyncio.run(coroutine)))
    thread.start()
    thread.join()
    if not results:
        raise RuntimeError("the page could not be made")
    return results[0]
