"""The service: unknown models and a server that is closing."""

import asyncio
import json

import pytest

from clearformer.generate.continuous import Update
from clearformer.http_server.errors import Problem
from clearformer.serve.answers import Answer, Completions
from clearformer.serve.engine import Job
from clearformer.serve.limits import ServeLimits
from clearformer.serve.metrics import Metrics
from clearformer.serve.requests import CompletionRequest
from clearformer.serve.served_model import ServedModel
from clearformer.serve.service import Service


@pytest.fixture
def service(models):
    limits, metrics = ServeLimits(drain_seconds=300), Metrics()
    served = [ServedModel("chat", models["chat"], limits, metrics)]
    return Service(served, limits, metrics)


def test_a_model_by_its_name(service):
    assert service.model("chat").id == "chat"
    with pytest.raises(Problem, match="there is no model 'x") as problem:
        service.model("x" * 1000)
    assert problem.value.status == 404
    assert len(str(problem.value)) < 200


def test_draining_waits_for_requests_unless_it_is_forced(service):
    service.metrics.in_flight = 1

    async def drain(force):
        await service.drain(force)

    asyncio.run(drain(lambda: True))
    with pytest.raises(Problem, match="the server is shutting down") as problem:
        service.model("chat")
    assert problem.value.status == 503

    async def ending():
        waiting = asyncio.ensure_future(service.drain(lambda: False))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        service.metrics.in_flight = 0
        await waiting

    asyncio.run(ending())


def test_timeout_does_not_cancel_the_reader_of_a_stream(models):
    """A reader that takes its time after a part goes on, and is told of the timeout."""
    limits, metrics = ServeLimits(timeout=0.01), Metrics()
    served = ServedModel("chat", models["chat"], limits, metrics)
    service = Service([served], limits, metrics)

    async def run():
        sequences = served.completion_sequences(CompletionRequest(model="chat", prompt="x"))
        job, answer = Job(sequences), Answer(Completions(None, None), "chat", sequences)
        job.deliver(sequences[0], Update(sequences[0], [], False))
        await asyncio.sleep(0)
        parts = service._stream(served, job, answer, include_usage=False)
        first = await anext(parts)
        await asyncio.sleep(0.05)
        return [first, *[part async for part in parts]]

    first, last = (json.loads(part.removeprefix(b"data: ")) for part in asyncio.run(run()))
    assert first["choices"][0]["index"] == 0
    assert last["error"]["code"] == "timed_out"
