"""The gate: who may send requests, told by a tiny application behind it."""

import asyncio
import json

import pytest

from clearformer.http_server.gate import (
    AccessMiddleware,
    HostMiddleware,
    allowed_hosts,
    bracketed,
    equal_secrets,
    error_response,
)


def ask(gate, path="/x", method="GET", body=b"", **headers):
    """The status and the headers of a response to one request."""
    sent = []
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "scheme": "http",
        "query_string": b"",
        "headers": [
            (name.replace("_", "-").encode(), value.encode())
            for name, value in {"host": "localhost", **headers}.items()
        ],
    }

    async def receive():
        return {"type": "http.request", "body": body}

    async def send(message):
        sent.append(message)

    asyncio.run(gate(scope, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"])


async def application(scope, receive, send):
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({}, 200),
        ({"origin": "http://localhost"}, 200),
        ({"origin": "https://localhost"}, 403),
        ({"origin": "http://evil.test"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "cross-site", "path": "/linked"}, 200),
        ({"method": "POST"}, 415),
        ({"method": "POST", "content_type": "application/json; charset=utf-8"}, 200),
        ({"method": "POST", "content_type": "application/json", "content_length": "11"}, 413),
        ({"path": "/locked"}, 401),
    ],
)
def test_who_passes(options, status):
    from starlette.responses import Response

    def authorize(scope, headers):
        return Response(status_code=401) if scope["path"] == "/locked" else None

    gate = AccessMiddleware(application, authorize, max_body=10, linked=("/linked",))
    found, headers = ask(gate, **options)
    assert found == status
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert headers[b"x-frame-options"] == b"DENY"


def test_a_body_that_grows_too_large_is_cut_off():
    from starlette.exceptions import HTTPException

    gate = AccessMiddleware(application, max_body=10)
    with pytest.raises(HTTPException) as problem:
        ask(gate, method="POST", content_type="application/json", body=b"x" * 11)
    assert problem.value.status_code == 413
    assert json.dumps(problem.value.detail)


def test_hosts():
    assert allowed_hosts("127.0.0.1") == allowed_hosts("localhost") == ("127.0.0.1", "localhost")
    assert "box.lan" in allowed_hosts("Box.lan")
    assert bracketed("::1") == "[::1]"


def test_secrets_of_any_text_are_compared():
    assert equal_secrets("abc", "abc")
    assert not equal_secrets("\ud800", "abc")


def test_foreign_host_gets_a_json_error():
    gate = HostMiddleware(application, ["localhost"], error_response)
    assert ask(gate)[0] == 200
    assert ask(gate, host="localhost:8000")[0] == 200
    status, headers = ask(gate, host="evil.test")
    assert (status, headers[b"content-type"]) == (400, b"application/json")
