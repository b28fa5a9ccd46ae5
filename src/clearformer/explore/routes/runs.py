"""Routes for training runs: the list, curves, a stream of events, and stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.sse import KEEPALIVE_COMMENT
from starlette.concurrency import run_in_threadpool

from clearformer import safe_files
from clearformer.explore import responses, runs
from clearformer.explore.explorer import CurrentExplorer, Explorer
from clearformer.explore.limits import POLL_SECONDS
from clearformer.explore.model_entry import ModelEntry
from clearformer.explore.requests import EmptyRequest, Id
from clearformer.explore.routes.generate import EVENTS, EventStream, event
from clearformer.http_server.errors import unknown

router = APIRouter(prefix="/api/runs")
PING_SECONDS = 15.0
Since = Annotated[str | None, Query(max_length=40)]


@router.get("", response_model=list[responses.RunResponse])
def list_runs(explorer: CurrentExplorer) -> Any:
    return [run_info(entry) for entry in explorer.library.runs()]


def run_info(entry: ModelEntry) -> dict[str, Any]:
    """One row of the list of runs."""
    info: dict[str, Any] = {"id": entry.id, "name": entry.name, "family": None, "steps": None}
    model = None
    try:
        config = entry.run_config
        info |= {"family": config.model.family or config.model.name, "steps": config.train.steps}
        model = entry.id if entry.checkpoints() else None
    except (OSError, ValueError):
        pass  # the curves can be shown without it
    return {**info, "model": model, **runs.state(entry.path)}


@router.get("/{id}/metrics", response_model=responses.Metrics)
def metrics(explorer: CurrentExplorer, id: Id, since: Since = None) -> Any:
    return runs.metrics(_require_run(explorer, id).path, since)


@router.get("/{id}/events", status_code=200, response_class=EventStream, responses=EVENTS)
async def events(
    explorer: CurrentExplorer,
    id: Id,
    since: Since = None,
    last_event_id: Annotated[str | None, Header(max_length=40)] = None,
) -> EventStream:
    explorer.streams.require()
    offsets = runs.ReadOffsets.parse(last_event_id) or runs.ReadOffsets.parse(since)
    watcher = await run_in_threadpool(_watcher, explorer, id, offsets)  # it reads files
    return EventStream(_events(explorer, watcher), explorer.streams)


def _watcher(explorer: Explorer, id: str, offsets: runs.ReadOffsets | None) -> runs.RunWatcher:
    path = _require_run(explorer, id).path
    seen = runs.checkpoint_ids(path) if offsets is not None else set()
    return runs.RunWatcher(path, offsets or runs.ReadOffsets(), seen)


async def _events(explorer: Explorer, watcher: runs.RunWatcher) -> AsyncIterator[bytes]:
    last = time.monotonic()
    while not explorer.closing:
        new = await asyncio.to_thread(watcher.poll)
        for name, data in new:
            yield event(name, data, str(watcher.offsets))
        if new:
            last = time.monotonic()
        elif time.monotonic() - last > PING_SECONDS:
            yield KEEPALIVE_COMMENT
            last = time.monotonic()
        await asyncio.sleep(POLL_SECONDS)


@router.post("/{id}/stop", status_code=202)
def stop(explorer: CurrentExplorer, id: Id, request: EmptyRequest) -> dict[str, str]:
    entry = _require_run(explorer, id)
    runs.stop(entry.path)
    return {"id": entry.id}


def _require_run(explorer: Explorer, id: str) -> ModelEntry:
    entry = explorer.library.entry(id)
    if not safe_files.is_file(entry.path / "metrics.jsonl"):
        raise unknown("run", id)
    return entry
