"""Sends requests to an ASGI application in the same process, without a network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from clearformer.explore.limits import MAX_EXPORT_BYTES, RESPONSE_SECONDS
from clearformer.http_server.errors import too_big, too_slow

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message

Header = tuple[bytes, bytes]
JSON: Header = (b"content-type", b"application/json")
LOCAL: tuple[Header, ...] = ((b"host", b"localhost"),)


async def request_json(
    app: ASGIApp,
    method: str,
    path: str,
    body: Any,
    headers: Sequence[Header] = (),
    *,
    seconds: float = RESPONSE_SECONDS,
    max_bytes: int = MAX_EXPORT_BYTES,
) -> bytes | None:
    """The JSON text of a response; None if its status or type is another.

    A Problem if it takes too long or is too large.
    """
    try:
        data = b"" if body is None else json.dumps(body).encode()
    except RecursionError:  # nested too deeply for any route
        return None
    exchange = Exchange(data, max_bytes)
    task = asyncio.ensure_future(exchange.run(app, method, path, headers or LOCAL))
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    finally:
        # Not awaited: a route that runs in a thread cannot be interrupted.
        task.cancel()
    if not done:
        hint = "try again, or use a shorter text"
        raise too_slow(f"{path[:80]} gave no answer", seconds, hint)
    problem = task.result()
    if problem is not None:
        raise problem
    if exchange.size > max_bytes:
        message = f"the response to {path[:80]} has more than {max_bytes:,} bytes"
        raise too_big(message, max_bytes)
    if exchange.status != 200 or not exchange.is_json:
        return None
    return b"".join(exchange.chunks)


class Exchange:
    """One request and its response: both ends of an ASGI connection."""

    def __init__(self, body: bytes, max_bytes: int = MAX_EXPORT_BYTES) -> None:
        self.body: bytes | None = body
        self.max_bytes = max_bytes
        self.status = 0
        self.is_json = False
        self.size = 0
        self.chunks: list[bytes] = []

    async def run(
        self, app: ASGIApp, method: str, target: str, headers: Sequence[Header]
    ) -> Exception | None:
        """Call the application; an exception is returned: the caller may have stopped waiting."""
        url = urlsplit(target)
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(url.path),
            "raw_path": url.path.encode("ascii", "ignore"),
            "query_string": url.query.encode("ascii", "ignore"),
            "root_path": "",
            "headers": [JSON, *headers],
            "client": ("127.0.0.1", 0),
            "server": ("127.0.0.1", 80),
        }
        try:
            await app(scope, self.receive, self.send)
        except Exception as problem:
            return problem
        return None

    async def receive(self) -> Message:
        """The body, then a disconnect, which ends a stream at once."""
        body, self.body = self.body, None
        if body is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            types = [value for name, value in message.get("headers", ()) if name == b"content-type"]
            self.is_json = any(each.startswith(b"application/json") for each in types)
        elif message["type"] == "http.response.body":
            chunk = message.get("body", b"")
            self.size += len(chunk)
            if self.is_json and self.size <= self.max_bytes:
                self.chunks.append(chunk)
