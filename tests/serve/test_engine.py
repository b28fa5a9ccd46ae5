"""The engine under load: full queues, time-outs, disconnected clients, errors and draining."""

import asyncio
import http.client
import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from clearformer.generate.continuous import ContinuousBatch
from clearformer.http_server.errors import Problem
from clearformer.serve import engine as engine_module
from clearformer.serve.engine import Engine, Job
from clearformer.serve.limits import ServeLimits
from clearformer.serve.metrics import Metrics

WAIT = 300  # seconds, never reached


def eventually(holds):
    end = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


@pytest.fixture
def held(monkeypatch):
    """Steps of a batch wait until the event is set."""
    go, step = threading.Event(), ContinuousBatch.step

    def waiting(batch):
        assert go.wait(WAIT)
        return step(batch)

    monkeypatch.setattr(ContinuousBatch, "step", waiting)
    yield go
    go.set()


def open_client(url, retries=0):
    return openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=retries, timeout=WAIT)


def engine_of(server_models, limits=ServeLimits()):
    model = server_models["chat"]
    return Engine("chat", model.language_model(), limits, Metrics())


def job_of(models, count=1, tokens=5):
    model = models["chat"]
    generation = model.generation({"max_tokens": tokens, "temperature": 1.0})
    from clearformer.generate.stream import start_sequences

    return Job(start_sequences(generation.model, ["abc"] * count, generation.config))


def test_timeout_returns_504(serving, held, ask):
    with serving(timeout=0.05) as url:
        body = {"model": "chat", "prompt": "x", "max_tokens": 2}
        status, found, _ = ask(f"{url}/v1/completions", body)
        assert (status, found["error"]["code"]) == (504, "timed_out")
        with pytest.raises(openai.APIError, match="the request took longer"):
            list(open_client(url).completions.create(**body, stream=True))
        held.set()


@pytest.mark.parametrize("stream", [True, False])
def test_disconnected_client_frees_its_slot(serving, ask, stream):
    with serving(max_batch=1, max_tokens=10**6) as url:
        host = url.removeprefix("http://")
        gone = http.client.HTTPConnection(host, timeout=WAIT)
        body = {"model": "chat", "prompt": "x", "max_tokens": 10**6, "stream": stream}
        gone.request(
            "POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"}
        )
        if stream:
            assert gone.getresponse().read(10)
        eventually(lambda: 'running_texts{model="chat"} 1.0' in ask(f"{url}/metrics")[1])
        gone.close()
        # Its place is the only one.
        status, _, _ = ask(
            f"{url}/v1/completions", {"model": "chat", "prompt": "x", "max_tokens": 2}
        )
        assert status == 200
        eventually(lambda: 'abandoned_texts_total{model="chat"} 1.0' in ask(f"{url}/metrics")[1])


def test_internal_error_returns_500_and_server_continues(serving, ask, monkeypatch):
    body = {"model": "chat", "prompt": "x", "max_tokens": 2}
    with serving() as url:
        with monkeypatch.context() as broken:
            broken.setattr(ContinuousBatch, "step", lambda batch: 1 / 0)
            status, found, _ = ask(f"{url}/v1/completions", body)
            assert (status, found["error"]["code"]) == (500, "defect")
            assert "division" not in found["error"]["message"]
        assert ask(f"{url}/v1/completions", body)[0] == 200


def test_running_requests_finish_while_draining(serving, held, ask):
    """New requests get 503, those in progress their answers."""
    with ThreadPoolExecutor(2) as pool:
        with serving(drain_seconds=WAIT) as url:
            body = {"model": "chat", "prompt": "x", "max_tokens": 3, "seed": 1}
            first = pool.submit(ask, f"{url}/v1/completions", body)
            eventually(lambda: 'running_texts{model="chat"} 1.0' in ask(f"{url}/metrics")[1])

            def late():
                """As soon as it is draining; then the others may go on."""
                eventually(lambda: ask(f"{url}/health")[0] == 503)
                answer = ask(f"{url}/v1/completions", body)
                held.set()
                return answer

            second = pool.submit(late)
        status, found, headers = second.result(WAIT)
        assert (status, found["error"]["code"]) == (503, "shutting_down")
        assert headers["retry-after"] == "1"
        assert first.result(WAIT)[0] == 200


def test_requests_beyond_drain_time_get_503(serving, ask):
    with ThreadPoolExecutor(1) as pool:
        with serving(drain_seconds=0, max_tokens=10**6) as url:
            body = {"model": "chat", "prompt": "x", "max_tokens": 10**6}
            first = pool.submit(ask, f"{url}/v1/completions", body)
            eventually(lambda: 'running_texts{model="chat"} 1.0' in ask(f"{url}/metrics")[1])
        status, found, _ = first.result(WAIT)
        assert (status, found["error"]["code"]) == (503, "shutting_down")


def test_many_clients_with_disconnects_get_correct_answers(serving, models, ask):
    """No wrong answer, none lost; benchmarks/serve.py does the same with 200."""
    clients, tokens = 40, 8
    with serving(max_batch=4, max_queue=100) as url:
        client = open_client(url, retries=0)

        def one(number):
            options = {"model": "chat", "prompt": f"{number} cats", "max_tokens": tokens}
            if number % 5 == 0:  # gone after the first part
                with client.completions.create(**options, seed=number, stream=True) as parts:
                    next(iter(parts))
                return None
            found = client.completions.create(**options, seed=number)
            return found.choices[0].text

        with ThreadPoolExecutor(clients) as pool:
            texts = list(pool.map(one, range(clients)))
        eventually(lambda: 'running_texts{model="chat"} 0.0' in _touch(ask, url))
    for number, text in enumerate(texts):
        if number % 5:
            assert text == models["chat"].generate(
                f"{number} cats", max_tokens=tokens, seed=number, temperature=1.0
            )


def _touch(ask, url):
    """The metrics, after the engine has looked at its queue once more."""
    ask(f"{url}/v1/embeddings", {"model": "chat", "input": "x"})
    return ask(f"{url}/metrics")[1]


# --- the engine itself ---------------------------------------------------------------------


async def ended(job):
    """Wait for all texts of a job."""
    left = len(job.sequences)
    while left:
        left -= (await job.events.get())[1].ended


def test_full_queue_returns_429(models, held):
    async def run():
        engine = engine_of(models, ServeLimits(max_batch=2, max_queue=1))
        jobs = [job_of(models) for _ in range(3)]
        for job in jobs:
            engine.submit(job)
        with pytest.raises(Problem, match="the queue of chat is full") as problem:
            engine.submit(job_of(models))
        assert problem.value.status == 429
        held.set()
        for job in jobs:
            await ended(job)
        again = job_of(models)
        engine.submit(again)
        await ended(again)
        engine.close()

    asyncio.run(run())


def test_gauges_are_zero_once_all_texts_have_ended(models):
    async def run():
        engine = engine_of(models)
        job = job_of(models, count=2)
        engine.submit(job)
        await ended(job)
        engine.close()
        read = engine.metrics.registry.get_sample_value
        for gauge in ("running", "waiting"):
            assert read(f"clearformer_{gauge}_texts", {"model": "chat"}) == 0

    asyncio.run(run())


def test_closed_engine_rejects_jobs(models):
    async def run():
        engine = engine_of(models)
        engine.close()
        with pytest.raises(Problem, match="the server is shutting down") as first:
            engine.submit(job_of(models))
        with pytest.raises(Problem, match="the server is shutting down") as second:
            await engine.call(lambda: 1)
        assert first.value is not second.value  # which would collect the tracebacks of all

    asyncio.run(run())


def test_calls_run_between_steps_and_propagate_errors(models):
    async def run():
        engine = engine_of(models)
        job = job_of(models, count=3)
        engine.submit(job)
        assert await engine.call(lambda: threading.current_thread().name) == "chat"
        with pytest.raises(ZeroDivisionError):
            await engine.call(lambda: 1 / 0)
        await ended(job)
        assert all(len(sequence.generated) == 5 for sequence in job.sequences)
        engine.cancel(job)  # it has ended: no effect
        assert not engine.cancelled
        engine.close()

    asyncio.run(run())


def test_cancelled_waiting_job_generates_nothing(models, held):
    async def run():
        engine = engine_of(models, ServeLimits(max_batch=1))
        first, second = job_of(models), job_of(models)
        engine.submit(first)
        engine.submit(second)
        engine.cancel(second)
        held.set()
        await ended(first)
        await engine.call(lambda: None)
        assert not second.sequences[0].generated
        assert not engine.waiting
        engine.close()

    asyncio.run(run())


def test_more_texts_than_the_server_can_take_return_400(models):
    async def run():
        engine = engine_of(models, ServeLimits(max_batch=2, max_queue=1))
        with pytest.raises(Problem, match="the request asks for 4 texts, but this") as problem:
            engine.submit(job_of(models, count=4))
        assert problem.value.status == 422  # 400 in the form of this API
        assert problem.value.body["error"]["field"] == "n"
        engine.close()

    asyncio.run(run())


async def busy_engine(models, limits=ServeLimits()):
    """An engine whose thread runs a call until the event is set, and a second call that waits."""
    engine, go, begun = engine_of(models, limits), threading.Event(), threading.Event()

    def block():
        begun.set()
        return go.wait(WAIT)

    running = asyncio.ensure_future(engine.call(block))
    while not begun.is_set():
        assert not running.done(), "it was refused"
        await asyncio.sleep(0.005)
    waiting = asyncio.ensure_future(engine.call(lambda: 1))
    await asyncio.sleep(0)
    assert engine.calls
    return engine, go, running, waiting


def test_call_runs_on_idle_server_without_queue(models):
    async def run():
        engine, go, running, waiting = await busy_engine(models, ServeLimits(max_queue=0))
        with pytest.raises(Problem, match="the queue of chat is full") as problem:
            await engine.call(lambda: 2)
        assert problem.value.status == 429
        go.set()
        assert (await running, await waiting) == (True, 1)
        engine.close()

    asyncio.run(run())


def test_waiting_call_gets_503_when_engine_closes(models):
    async def run():
        engine, go, running, waiting = await busy_engine(models)
        closing = asyncio.ensure_future(asyncio.to_thread(engine.close))
        while not engine.closing:
            await asyncio.sleep(0.005)
        go.set()
        assert await running is True
        with pytest.raises(Problem, match="the server is shutting down") as problem:
            await waiting
        assert problem.value.status == 503
        await closing

    asyncio.run(run())


def test_engine_closes_while_a_long_call_runs(models, monkeypatch):
    said = []
    logger = logging.getLogger("uvicorn.error")
    monkeypatch.setattr(logger, "error", lambda text, *values: said.append(text % values))
    monkeypatch.setattr(engine_module, "CLOSE_SECONDS", 0.01)

    async def run():
        engine, go, running, waiting = await busy_engine(models)
        job = job_of(models)
        engine.submit(job)
        engine.close()  # the call runs on
        with pytest.raises(Problem, match="the server is shutting down"):
            await waiting
        assert (await job.events.get())[1].status == 503
        go.set()
        assert await running is True
        engine.thread.join(WAIT)
        assert not engine.thread.is_alive()

    asyncio.run(run())
    assert said == ["chat is still busy after 0.01 s: its requests are dropped"]


def test_long_call_is_computed_in_parts(models):
    async def run():
        engine = engine_of(models)
        parts = []

        def square(items):
            parts.append(len(items))
            return [item * item for item in items]

        found = await engine.call_in_parts(square, range(70))
        assert found == [item * item for item in range(70)]
        assert parts == [32, 32, 6]
        assert await engine.call_in_parts(square, []) == []
        with pytest.raises(ZeroDivisionError):
            await engine.call_in_parts(lambda items: [1 // item for item in items], [1, 0])
        engine.close()

    asyncio.run(run())


def test_calls_of_others_have_their_turn(models):
    async def run():
        engine, go, running, waiting = await busy_engine(models)
        order = []

        def noted(name):
            return lambda items: order.append((name, len(items))) or items

        # The second part of a request that has begun is not refused, though the queue is full.
        engine.limits = ServeLimits(max_queue=2)
        long = asyncio.ensure_future(engine.call_in_parts(noted("long"), range(64)))
        await asyncio.sleep(0)
        short = asyncio.ensure_future(engine.call_in_parts(noted("short"), range(2)))
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(running, waiting, long, short)
        assert order == [("long", 32), ("short", 2), ("long", 32)]
        engine.close()

    asyncio.run(run())


def test_parts_share_one_timeout(models):
    async def run():
        engine, go, running, waiting = await busy_engine(models)
        engine.limits = ServeLimits(timeout=0.05)  # the calls before have all the time they need
        with pytest.raises(Problem, match=r"took longer than 0.05 s"):
            await engine.call_in_parts(list, range(64))
        go.set()
        assert await asyncio.gather(running, waiting) == [True, 1]
        engine.close()

    asyncio.run(run())
