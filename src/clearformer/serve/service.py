"""The service behind the routes: its models, and how a request waits for its texts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response, StreamingResponse

from clearformer.generate.continuous import Update
from clearformer.generate.sequence import GeneratedSequence
from clearformer.http_server.error_handlers import as_problem
from clearformer.http_server.errors import Problem
from clearformer.serve.answers import Answer, Form, event
from clearformer.serve.engine import Job, stopped, timed_out
from clearformer.serve.errors import error_body
from clearformer.serve.limits import ServeLimits
from clearformer.serve.metrics import Metrics
from clearformer.serve.requests import GenerationRequest
from clearformer.serve.served_model import ServedModel

GONE = Response(status_code=499)  # nobody reads it


class Service:
    """Everything that routes use."""

    def __init__(
        self, models: Sequence[ServedModel], limits: ServeLimits, metrics: Metrics
    ) -> None:
        self.models = {model.id: model for model in models}
        self.limits = limits
        self.metrics = metrics
        self.draining = False

    def model(self, name: str) -> ServedModel:
        """The model of this name; Problem if there is none, or the server is about to close."""
        if self.draining:
            raise stopped()
        if name not in self.models:
            known = ", ".join(list(self.models)[:10])
            raise Problem(
                404,
                "model_not_found",
                f"there is no model {name[:80]!r}",
                hint=f"this server has {known}",
                field="model",
            )
        return self.models[name]

    async def answer(
        self,
        http: Request,
        model: ServedModel,
        form: Form,
        sequences: Sequence[GeneratedSequence],
        request: GenerationRequest,
    ) -> Response:
        """Generate the sequences, and answer with all of them or with a stream of their tokens."""
        job, answer = Job(sequences), Answer(form, model.id, sequences, request.n or 1)
        model.engine.submit(job)
        if request.stream:
            options = request.stream_options
            include_usage = options is not None and options.include_usage
            events = self._stream(model, job, answer, include_usage)
            return StreamingResponse(events, media_type="text/event-stream")
        try:
            if not await self._finished(http, job):
                return GONE
        finally:
            model.engine.cancel(job)
        return JSONResponse(answer.whole())

    async def _finished(self, http: Request, job: Job) -> bool:
        """Wait for all texts of a job; False if the client has gone before."""
        waiting = asyncio.ensure_future(_collect(job))
        leaving = asyncio.ensure_future(_disconnected(http))
        try:
            async with asyncio.timeout(self.limits.timeout):
                await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            raise timed_out(self.limits.timeout) from None
        finally:
            for task in (waiting, leaving):
                task.cancel()
        if not waiting.done() or waiting.cancelled():
            return False
        waiting.result()  # raises what has gone wrong
        return True

    async def _stream(
        self, model: ServedModel, job: Job, answer: Answer, include_usage: bool
    ) -> AsyncIterator[bytes]:
        left = len(job.sequences)
        deadline = asyncio.get_running_loop().time() + self.limits.timeout
        try:
            for opening in answer.openings():
                yield opening
            while left:
                # Not around the yield: it would cancel whatever the caller does meanwhile.
                async with asyncio.timeout_at(deadline):
                    place, update = await _next(job)
                left -= update.ended
                yield answer.chunk(place, update.tokens, update.ended)
            for closing in answer.closing(include_usage):
                yield closing
        except TimeoutError:
            yield event(error_body(timed_out(self.limits.timeout)))
        except (Problem, ValueError) as problem:
            yield event(error_body(as_problem(problem)))
        finally:
            model.engine.cancel(job)

    async def drain(self, force: Any) -> None:
        """Let requests in progress end, for a while; `force()` ends the wait."""
        self.draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.limits.drain_seconds):
                while self.metrics.in_flight and not force():
                    await asyncio.sleep(0.02)
        engines = [model.engine for model in self.models.values()]
        await asyncio.gather(*(run_in_threadpool(engine.close) for engine in engines))

    def close(self) -> None:
        for model in self.models.values():
            model.engine.close()


async def _next(job: Job) -> tuple[int, Update]:
    """The next event of a job; what ended a text is raised."""
    place, found = await job.events.get()
    if isinstance(found, Problem):
        raise found
    if found.problem is not None:
        raise found.problem
    return place, found


async def _collect(job: Job) -> None:
    left = len(job.sequences)
    while left:
        _, update = await _next(job)
        left -= update.ended


async def _disconnected(http: Request) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


def current_service(http: Request) -> Service:
    service: Service = http.app.state.service
    return service


CurrentService = Annotated[Service, Depends(current_service)]
