"""The service: unknown models and a server that is closing."""

import asyncio

import pytest

from clearformer.http_server.errors import Problem
from clearformer.serve.limits import ServeLimits
from clearformer.serve.metrics import Metrics
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
