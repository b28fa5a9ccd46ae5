"""In-process requests without a network."""

import asyncio
import json

import pytest

from clearformer.explore.in_process_client import request_json
from clearformer.http_server.errors import Problem


def told(*arguments):
    return json.loads(asyncio.run(request_json(*arguments)))


def test_requests_application_directly(explorer_server):
    app = explorer_server.app
    assert told(app, "GET", "/api/info", None)["limits"]["max_tokens"] == 512
    assert told(app, "GET", "/api/patterns?kind=causal&n=3", None)["edges"] == 6
    body = {"model": "gpt2", "text": "the cat", "permutation": [1, 0, 2]}
    assert told(app, "POST", "/api/permute", body)["permutation"] == [1, 0, 2]


def test_error_response_is_none(explorer_server):
    app = explorer_server.app
    assert asyncio.run(request_json(app, "GET", "/api/traces/none", None)) is None
    evil = [(b"host", b"evil.test")]
    assert asyncio.run(request_json(app, "GET", "/api/info", None, evil)) is None


@pytest.mark.parametrize("path", ["/api/runs/gpt2/events", "/api/runs/gpt2/%65vents"])
def test_stream_response_is_none(explorer_server, path):
    assert asyncio.run(request_json(explorer_server.app, "GET", path, None)) is None
    assert explorer_server.app.state.explorer.streams.in_use == 0


def test_times_out_without_response():
    cancelled = []

    async def silent(scope, receive, send):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(scope["path"])
            raise

    with pytest.raises(Problem, match="/api/x gave no answer in 0 s") as refusal:
        asyncio.run(request_json(silent, "GET", "/api/x", None, seconds=0.01))
    assert refusal.value.status == 503
    assert cancelled == ["/api/x"]


def test_rejects_oversized_response():
    async def endless(scope, receive, send):
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for _ in range(5):
            await send({"type": "http.response.body", "body": b"x" * 10, "more_body": True})

    with pytest.raises(Problem, match="the response to /api/x has more than 30 bytes") as refusal:
        asyncio.run(request_json(endless, "GET", "/api/x", None, max_bytes=30))
    assert (refusal.value.status, refusal.value.body["error"]["limit"]) == (413, 30)


def test_exceptions_propagate():
    async def broken(scope, receive, send):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(request_json(broken, "GET", "/api/x", None))


def test_deeply_nested_body_is_none(explorer_server):
    body = {}
    for _ in range(100_000):
        body = {"x": body}
    assert asyncio.run(request_json(explorer_server.app, "POST", "/api/probe", body)) is None
