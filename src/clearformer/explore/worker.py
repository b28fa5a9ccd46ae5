"""One worker thread for each model: every call on the model runs there, one after the other.

`trace` changes a model while it runs, so calls must not overlap. None may run on the event
loop, which serves the other clients meanwhile. A call is refused when the queue is full.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from clearformer.explore.limits import MAX_QUEUE, RESPONSE_SECONDS
from clearformer.http_server.errors import busy, too_slow

Result = TypeVar("Result")
Job = tuple[Callable[[], Any], Future[Any]]


class Worker:
    """A thread that starts with the first call and ends with the server."""

    def __init__(self, name: str, subject: str = "model") -> None:
        self.name = name
        self.subject = subject  # what callers wait for, in messages
        self.jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.thread: threading.Thread | None = None
        self.lock = threading.Lock()

    def submit(self, call: Callable[[], Result]) -> Future[Result]:
        """Put a call into the queue; a Problem if it is full."""
        if self.jobs.qsize() >= MAX_QUEUE:
            raise busy(f"{MAX_QUEUE} calls are waiting for this {self.subject} already", MAX_QUEUE)
        return self.submit_always(call)

    def submit_always(self, call: Callable[[], Result]) -> Future[Result]:
        """Put a call into the queue even if it is full: for clean-up."""
        future: Future[Result] = Future()
        with self.lock:
            if self.thread is None:
                self.thread = threading.Thread(target=self._work, name=self.name, daemon=True)
                self.thread.start()
            self.jobs.put((call, future))
        return future

    async def run(self, call: Callable[[], Result]) -> Result:
        """Await a call; it is dropped if the caller is cancelled before it starts."""
        future = self.submit(call)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), RESPONSE_SECONDS)
        except TimeoutError:
            raise too_slow(
                f"the {self.subject} gave no answer",
                RESPONSE_SECONDS,
                "it may still be loading: try again, or use a shorter text",
            ) from None
        finally:
            future.cancel()  # no effect on a call that has ended

    def _work(self) -> None:
        while (job := self.jobs.get()) is not None:
            call, future = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as problem:
                future.set_exception(problem)
            del job, call, future  # release a large result while waiting for the next call

    def close(self) -> None:
        """End after the running call; drop the calls that wait."""
        with self.lock:
            if self.thread is None:
                return
            with contextlib.suppress(queue.Empty):
                while (job := self.jobs.get_nowait()) is not None:
                    job[1].cancel()
            self.jobs.put(None)
            self.thread = None
