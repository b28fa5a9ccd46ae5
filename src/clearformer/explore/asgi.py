"""Putting a request to an application without a network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from starlette.types import ASGIApp, Message

Header = tuple[bytes, bytes]
LOCAL: tuple[Header, ...] = ((b"host", b"localhost"),)


async def ask(app: ASGIApp, method: str, path: str, body: Any, more: Sequence[Header] = ()) -> Any:
    """The JSON that the application answers; none if it refuses."""
    parts = urlsplit(path)
    data = b"" if body is None else json.dumps(body).encode()
    status, chunks = 0, []

    async def receive() -> Message:
        return {"type": "http.request", "body": data, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            chunks.append(message.get("body", b""))

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(parts.path),
        "raw_path": parts.path.encode("ascii", "ignore"),
        "query_string": parts.query.encode("ascii", "ignore"),
        "root_path": "",
        "headers": [(b"content-type", b"application/json"), *(more or LOCAL)],
        "client": ("127.0.0.1", 0),
        "server": ("127.0.0.1", 80),
    }
    await app(scope, receive, send)
    return json.loads(b"".join(chunks)) if status == 200 else None
