"""Runs: the list, curves by increments, a stream of news, and the stop button."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.sse import KEEPALIVE_COMMENT
from starlette.concurrency import run_in_threadpool

from clearformer import safe_files
from clearformer.explore import runs
from clearformer.explore.entries import Entry
from clearformer.explore.errors import unknown
from clearformer.explore.explorer import Explorer, Here
from clearformer.explore.limits import POLL_SECONDS
from clearformer.explore.requests import Id, Nothing
from clearformer.explore.responses import Metrics, RunTold, Stopping
from clearformer.explore.routes.generate import EVENTS, EventStream, event

router = APIRouter(prefix="/api/runs")
PING_SECONDS = 15.0
Since = Annotated[str | None, Query(max_length=40)]


@router.get("", response_model=list[RunTold])
def listed(here: Here) -> Any:
    return [_about(entry) for entry in here.library.runs()]


def _about(entry: Entry) -> dict[str, Any]:
    kind, steps, usable = None, None, False
    try:
        config = entry.run_config
        kind, steps = config.model.family or config.model.name, config.train.steps
        usable = bool(entry.checkpoints())
    except (OSError, ValueError):
        pass  # the curves can be shown without
    about = {"id": entry.id, "name": entry.name, "family": kind, "steps": steps}
    return {**about, "model": entry.id if usable else None, **runs.state(entry.path)}


@router.get("/{id}/metrics", response_model=Metrics)
def metrics(here: Here, id: Id, since: Since = None) -> Any:
    return runs.metrics(_run(here, id).path, since)


@router.get("/{id}/events", status_code=200, response_class=EventStream, responses=EVENTS)
async def events(
    here: Here,
    id: Id,
    since: Since = None,
    last_event_id: Annotated[str | None, Header(max_length=40)] = None,
) -> EventStream:
    here.streams.require()
    mark = runs.Mark.parse(last_event_id) or runs.Mark.parse(since)
    watch = await run_in_threadpool(_watch, here, id, mark)  # it looks at files
    return EventStream(_events(here, watch), here.streams)


def _watch(here: Explorer, id: str, mark: runs.Mark | None) -> runs.Watch:
    path = _run(here, id).path
    known = runs.checkpoint_ids(path) if mark is not None else set()
    return runs.Watch(path, mark or runs.Mark(), known)


async def _events(here: Explorer, watch: runs.Watch) -> AsyncIterator[bytes]:
    last = time.monotonic()
    while not here.closing:
        found = await asyncio.to_thread(watch.poll)
        for name, data in found:
            yield event(name, data, str(watch.mark))
        if found:
            last = time.monotonic()
        elif time.monotonic() - last > PING_SECONDS:
            yield KEEPALIVE_COMMENT
            last = time.monotonic()
        await asyncio.sleep(POLL_SECONDS)


@router.post("/{id}/stop", status_code=202, response_model=Stopping)
def stop(here: Here, id: Id, asked: Nothing) -> Any:
    entry = _run(here, id)
    runs.stop(entry.path)
    return {"id": entry.id}


def _run(here: Explorer, id: str) -> Entry:
    entry = here.library.entry(id)
    if not safe_files.is_file(entry.path / "metrics.jsonl"):
        raise unknown("run", id)
    return entry
