"""One thread for each model: every call on it runs there, one after the other.

`trace` changes a model while it runs, so no two calls may meet; and none may run on the event
loop, which answers everybody else meanwhile. Whoever comes when the queue is full is told so.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from clearformer.explore.errors import Problem
from clearformer.explore.limits import ANSWER_SECONDS, QUEUE

Result = TypeVar("Result")
Job = tuple[Callable[[], Any], Future[Any]]


class Worker:
    """A thread that starts with the first call and ends with the server."""

    def __init__(self, name: str, wanted: str = "model") -> None:
        self.name = name
        self.wanted = wanted  # what a caller waits for
        self.jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.thread: threading.Thread | None = None
        self.lock = threading.Lock()

    def submit(self, call: Callable[[], Result]) -> Future[Result]:
        """Put a call into the queue; a Problem if it is full."""
        if self.jobs.qsize() >= QUEUE:
            raise Problem(
                429,
                "busy",
                f"{QUEUE} calls are waiting for this {self.wanted} already",
                hint="try again in a moment",
                limit=QUEUE,
            )
        return self.afterwards(call)

    def afterwards(self, call: Callable[[], Result]) -> Future[Result]:
        """The same, full queue or not: for what must be put back in any case."""
        future: Future[Result] = Future()
        with self.lock:
            if self.thread is None:
                self.thread = threading.Thread(target=self._work, name=self.name, daemon=True)
                self.thread.start()
            self.jobs.put((call, future))
        return future

    async def run(self, call: Callable[[], Result]) -> Result:
        """The same for a coroutine; a call that nobody waits for any more is left out."""
        future = self.submit(call)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), ANSWER_SECONDS)
        except TimeoutError:
            future.cancel()
            raise Problem(
                503,
                "too_slow",
                f"the {self.wanted} gave no answer in {ANSWER_SECONDS:.0f} s",
                hint="it may still be loading: try again, or use a shorter text",
            ) from None
        except asyncio.CancelledError:
            future.cancel()
            raise

    def _work(self) -> None:
        while (job := self.jobs.get()) is not None:
            call, future = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as problem:
                future.set_exception(problem)
            del job, call, future  # a result may be large, and the next call long in coming

    def close(self) -> None:
        """End after the call that is running; those that wait are dropped."""
        with self.lock:
            if self.thread is None:
                return
            with contextlib.suppress(queue.Empty):
                while (job := self.jobs.get_nowait()) is not None:
                    job[1].cancel()
            self.jobs.put(None)
            self.thread = None
