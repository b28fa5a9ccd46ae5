"""Worker thread: one call at a time, at most eight waiting."""

import asyncio
import threading

import pytest

from clearformer.explore.worker import Worker
from clearformer.http_server.errors import Problem


@pytest.fixture
def worker():
    made = Worker("test")
    yield made
    made.close()


def test_calls_run_in_order(worker):
    done = []
    futures = [worker.submit(lambda n=n: done.append(n)) for n in range(5)]
    [future.result(60) for future in futures]
    assert done == [0, 1, 2, 3, 4]


def test_rejects_ninth_waiting_call(worker):
    gate, running = threading.Event(), threading.Event()

    def busy():
        running.set()
        gate.wait(60)

    first = worker.submit(busy)
    running.wait(60)
    waiting = [worker.submit(lambda: None) for _ in range(8)]
    with pytest.raises(Problem, match="8 calls are waiting for this model already") as problem:
        worker.submit(lambda: None)
    assert problem.value.status == 429
    closing = worker.submit_always(lambda: "closed")  # what must be put back is not refused
    gate.set()
    assert closing.result(60) == "closed"
    assert first.done()
    assert all(future.done() for future in waiting)


def test_exception_is_raised_to_caller(worker):
    with pytest.raises(ZeroDivisionError):
        worker.submit(lambda: 1 / 0).result(60)
    assert worker.submit(lambda: 7).result(60) == 7


def test_cancelled_call_is_skipped(worker):
    gate, done = threading.Event(), []

    async def ask():
        worker.submit(lambda: gate.wait(60))
        call = asyncio.create_task(worker.run(lambda: done.append(1)))
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        gate.set()
        return await worker.run(lambda: "next")

    assert asyncio.run(ask()) == "next"
    assert done == []


def test_slow_call_times_out(worker, monkeypatch):
    monkeypatch.setattr("clearformer.explore.worker.RESPONSE_SECONDS", 0.05)
    gate = threading.Event()
    with pytest.raises(Problem, match="the model gave no answer") as problem:
        asyncio.run(worker.run(lambda: gate.wait(60)))
    gate.set()
    assert problem.value.status == 503
