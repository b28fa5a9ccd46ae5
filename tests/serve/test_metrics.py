"""Metrics: counted by route and status, also for clients that go away."""

import asyncio

import pytest

from clearformer.serve.metrics import Metrics, MetricsMiddleware

SCOPE = {"type": "http", "path": "/known"}


async def answers(scope, receive, send):
    await send({"type": "http.response.start", "status": 201, "headers": []})


async def fails(scope, receive, send):
    raise ZeroDivisionError


async def nothing(message=None):
    return None


def counted(metrics, route, status):
    return metrics.registry.get_sample_value(
        "clearformer_requests_total", {"route": route, "status": status}
    )


def test_routes_are_counted_and_unknown_ones_together():
    metrics = Metrics()
    counting = MetricsMiddleware(answers, metrics, ["/known"])
    for path in ("/known", "/a", "/b"):
        asyncio.run(counting({**SCOPE, "path": path}, nothing, nothing))
    assert counted(metrics, "/known", "201") == 1
    assert counted(metrics, "other", "201") == 2
    assert metrics.in_flight == 0


def test_a_request_without_an_answer_is_counted_too():
    metrics = Metrics()
    with pytest.raises(ZeroDivisionError):
        asyncio.run(MetricsMiddleware(fails, metrics, ["/known"])(SCOPE, nothing, nothing))
    assert counted(metrics, "/known", "499") == 1
    assert metrics.in_flight == 0
