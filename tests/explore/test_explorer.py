"""What routes share: models opened on their own thread."""

import asyncio
import threading

from clearformer.explore.explorer import Explorer


def test_calls_on_a_model_run_on_its_thread(explorer_server):
    here = Explorer(explorer_server.library)

    async def ask():
        return await here.on_model("gpt2", None, lambda opened: (
            opened.entry.id, threading.current_thread().name))  # fmt: skip

    assert asyncio.run(ask()) == ("gpt2", "gpt2")


def test_a_trace_that_was_asked_for_makes_room_afterwards(explorer_server, opened, monkeypatch):
    here = Explorer(explorer_server.library)
    kept = here.traces.make(opened("gpt2"), [1, 2, 3], {})
    monkeypatch.setattr("clearformer.explore.trace_cache.KEPT_TRACE_BYTES", 0)

    async def ask():
        await here.on_trace(kept.id, lambda found: found.layer(0))
        await here.on_trace(kept.id, lambda found: found.layer(1))

    asyncio.run(ask())
    assert list(kept.layers) == [1]
