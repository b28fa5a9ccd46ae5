"""The engine of a model: one thread that generates all texts side by side.

Requests are added to a queue and join the batch when there is a place (`generate.continuous`).
Whatever else a model is asked for runs between two steps, so that only this thread uses it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from clearformer.generate.continuous import ContinuousBatch, Update
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.sequence import GeneratedSequence
from clearformer.http_server.errors import Problem, bad_field, busy
from clearformer.serve.limits import CALL_ITEMS, CLOSE_SECONDS, ServeLimits
from clearformer.serve.metrics import Metrics

Item = TypeVar("Item")
Result = TypeVar("Result")
Event = tuple[int, Update | Problem]  # the place of a text in its job, and what happened to it


class Job:
    """The texts of one request; their events arrive in `events`, on the loop that made the job."""

    def __init__(self, sequences: Sequence[GeneratedSequence]) -> None:
        self.sequences = list(sequences)
        self.places = {sequence: place for place, sequence in enumerate(self.sequences)}
        self.loop = asyncio.get_running_loop()
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.arrived = time.monotonic()

    def deliver(self, sequence: GeneratedSequence, event: Update | Problem) -> None:
        """Pass an event to the loop; from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            place = self.places[sequence]
            self.loop.call_soon_threadsafe(self.events.put_nowait, (place, event))


class Engine:
    """A thread that starts with the first request and ends with the server."""

    def __init__(
        self, name: str, model: LanguageModel | None, limits: ServeLimits, metrics: Metrics
    ) -> None:
        self.name = name
        self.limits = limits
        self.metrics = metrics
        self.batch = None if model is None else ContinuousBatch(model)
        self.waiting: deque[tuple[Job, GeneratedSequence]] = deque()
        self.running: dict[GeneratedSequence, Job] = {}
        self.cancelled: set[Job] = set()
        self.calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self.wake = threading.Condition()
        self.thread: threading.Thread | None = None
        self.closing = False

    # --- from the event loop -------------------------------------------------------------------

    def submit(self, job: Job) -> None:
        """Queue the texts of a job; Problem if there are too many, or the server is closing."""
        with self.wake:
            self._require_open()
            most = self.limits.max_batch + self.limits.max_queue
            if len(job.sequences) > most:
                raise bad_field(
                    "n",
                    f"the request asks for {len(job.sequences)} texts, but this server takes at "
                    f"most {most} at a time: lower n or give fewer prompts",
                )
            free = self.limits.max_batch - len(self.running)
            if len(self.waiting) + len(job.sequences) > self.limits.max_queue + max(0, free):
                raise busy(
                    f"the queue of {self.name} is full ({len(self.waiting)} texts are waiting)",
                    self.limits.max_queue,
                )
            self.waiting.extend((job, sequence) for sequence in job.sequences)
            self._notify()

    def cancel(self, job: Job) -> None:
        """Drop what is left of a job; no effect if it has ended."""
        with self.wake:
            if any(each is job for each, _ in self.waiting) or job in self.running.values():
                self.cancelled.add(job)
                self._notify()

    async def call(self, function: Callable[[], Result], begun: bool = False) -> Result:
        """Run a function on the thread of the engine, between two steps.

        The next part of a request that has `begun` is not refused because others wait.
        """
        future: Future[Result] = Future()
        with self.wake:
            self._require_open()
            if not begun and len(self.calls) > self.limits.max_queue:  # one is about to run
                raise busy(
                    f"the queue of {self.name} is full ({len(self.calls)} calls are waiting)",
                    self.limits.max_queue,
                )
            self.calls.append((function, future))
            self._notify()
        try:
            async with asyncio.timeout(self.limits.timeout):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise timed_out(self.limits.timeout) from None
        finally:
            future.cancel()  # no effect on a call that has ended

    async def call_in_parts(
        self, function: Callable[[list[Item]], Iterable[Result]], items: Sequence[Item]
    ) -> list[Result]:
        """Run a function for a few items at a time.

        Between two parts the texts of others advance, and their calls have their turn.
        """
        found: list[Result] = []
        try:
            async with asyncio.timeout(self.limits.timeout):
                for start in range(0, len(items), CALL_ITEMS):
                    part = partial(function, list(items[start : start + CALL_ITEMS]))
                    found += await self.call(part, begun=start > 0)
        except TimeoutError:
            raise timed_out(self.limits.timeout) from None
        return found

    def close(self) -> None:
        """End the thread after its current step or call; what is left gets an error."""
        with self.wake:
            if self.closing:
                return
            self.closing = True
            self.wake.notify()
        if self.thread is None:
            return
        self.thread.join(CLOSE_SECONDS)
        if self.thread.is_alive():
            logging.getLogger("uvicorn.error").error(
                "%s is still busy after %g s: its requests are dropped", self.name, CLOSE_SECONDS
            )
            self._stop()

    def _require_open(self) -> None:
        if self.closing:
            raise stopped()

    def _notify(self) -> None:
        if self.thread is None:
            self.thread = threading.Thread(target=self._work, name=self.name, daemon=True)
            self.thread.start()
        self.wake.notify()

    # --- on the thread of the engine -----------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self.wake:
                self._set_gauges()  # also of the last step before a pause
                while not (
                    self.closing or self.waiting or self.running or self.calls or self.cancelled
                ):
                    self.wake.wait()
                if self.closing:
                    break
                self._drop_cancelled()
                self._admit()
                call = self.calls.popleft() if self.calls else None
                self._set_gauges()
            if call is not None:
                _run(*call)
            del call  # release a large result
            if self.running:
                self._step()
        self._stop()

    def _set_gauges(self) -> None:
        self.metrics.running.labels(self.name).set(len(self.running))
        self.metrics.waiting.labels(self.name).set(len(self.waiting))

    def _drop_cancelled(self) -> None:
        if not self.cancelled:
            return
        assert self.batch is not None
        left = [each for each in self.waiting if each[0] not in self.cancelled]
        dropped = len(self.waiting) - len(left)
        self.waiting = deque(left)
        for sequence, job in list(self.running.items()):
            if job in self.cancelled:
                self.batch.remove(sequence)
                del self.running[sequence]
                dropped += 1
        self.metrics.abandoned.labels(self.name).inc(dropped)
        self.cancelled.clear()

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.limits.max_batch:
            job, sequence = self.waiting.popleft()
            assert self.batch is not None
            self.batch.add(sequence)
            self.running[sequence] = job
            self.metrics.prompt_tokens.labels(self.name).inc(len(sequence.prompt))

    def _step(self) -> None:
        assert self.batch is not None
        self.metrics.batch.labels(self.name).observe(len(self.running))
        try:
            updates = self.batch.step()
        except Exception:  # a bug, or no memory: the texts are lost, the server is not
            logging.getLogger("uvicorn.error").exception("a step of %s failed", self.name)
            self._abandon_running()
            return
        self.metrics.generated_tokens.labels(self.name).inc(len(updates))
        for update in updates:
            sequence = update.sequence
            job = self.running[sequence]
            if len(sequence.generated) == 1:
                waited = time.monotonic() - job.arrived
                self.metrics.first_token.labels(self.name).observe(waited)
            if update.ended:
                with self.wake:
                    del self.running[sequence]
            if update.tokens or update.ended:
                job.deliver(sequence, update)

    def _abandon_running(self) -> None:
        """Take all texts out of the batch after a defect."""
        assert self.batch is not None
        with self.wake:
            left = [(job, sequence) for sequence, job in self.running.items()]
            self.running.clear()
        for _, sequence in left:
            self.batch.remove(sequence)
        _deliver(left, defect)

    def _stop(self) -> None:
        """Tell every text and call that is left that the server is closing."""
        with self.wake:
            left = [(job, sequence) for sequence, job in self.running.items()]
            left += self.waiting
            self.waiting.clear()
            while self.calls:
                _, future = self.calls.popleft()
                if future.set_running_or_notify_cancel():
                    future.set_exception(stopped())
        _deliver(left, stopped)


def _deliver(
    texts: Iterable[tuple[Job, GeneratedSequence]], problem: Callable[[], Problem]
) -> None:
    for job, sequence in texts:
        job.deliver(sequence, problem())


def _run(function: Callable[[], Any], future: Future[Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function())
    except BaseException as problem:
        future.set_exception(problem)


def timed_out(seconds: float) -> Problem:
    return Problem(
        504,
        "timed_out",
        f"the request took longer than {seconds:g} s",
        hint="lower max_tokens or n",
    )


# A new exception each time: one that is raised again keeps the tracebacks of others.
def stopped() -> Problem:
    return Problem(503, "shutting_down", "the server is shutting down")


def defect() -> Problem:
    return Problem(500, "defect", "internal error: see the terminal for details")
