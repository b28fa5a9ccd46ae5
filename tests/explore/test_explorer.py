"""Shared state of the routes: models run on their own thread."""

import asyncio
import threading

from clearformer.explore.explorer import Explorer
from clearformer.explore.requests import ModelRequest


def test_model_calls_run_on_model_thread(explorer_server):
    here = Explorer(explorer_server.library)

    async def ask():
        return await here.run_on_model(ModelRequest(model="gpt2"), lambda loaded: (
            loaded.entry.id, threading.current_thread().name))  # fmt: skip

    assert asyncio.run(ask()) == ("gpt2", "gpt2")


def test_trace_cache_is_evicted_after_request(explorer_server, loaded, monkeypatch):
    here = Explorer(explorer_server.library)
    kept = here.traces.add(loaded("gpt2"), [1, 2, 3], {})
    monkeypatch.setattr("clearformer.explore.trace_cache.MAX_CACHED_TRACE_BYTES", 0)

    async def ask():
        await here.trace_json(kept.id, lambda cached: len(cached.layer(0).recorded))
        await here.trace_json(kept.id, lambda cached: len(cached.layer(1).recorded))

    asyncio.run(ask())
    assert list(kept.layers) == [1]
