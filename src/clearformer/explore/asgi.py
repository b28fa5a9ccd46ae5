"""Puts a request to an application without a network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from starlette.types import ASGIApp, Message

from clearformer.explore.errors import Problem
from clearformer.explore.limits import ANSWER_SECONDS, LARGEST_EXPORT

Header = tuple[bytes, bytes]
LOCAL: tuple[Header, ...] = ((b"host", b"localhost"),)


async def ask(
    app: ASGIApp,
    method: str,
    path: str,
    body: Any,
    more: Sequence[Header] = (),
    *,
    seconds: float = ANSWER_SECONDS,
    largest: int = LARGEST_EXPORT,
) -> bytes | None:
    """The JSON text that the application answers; none if it refuses or answers something else.

    A Problem if it takes too long or is too large.
    """
    parts = urlsplit(path)
    try:
        data = b"" if body is None else json.dumps(body).encode()
    except RecursionError:  # nested too deeply for any route
        return None
    answer = _Answer(data, largest)
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
    task = asyncio.ensure_future(_called(app, scope, answer))
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    finally:
        # Not waited for: a route that runs in a thread cannot be interrupted.
        task.cancel()
    if not done:
        raise Problem(
            503,
            "too_slow",
            f"{path[:80]} gave no answer in {seconds:.0f} s",
            hint="try again, or use a shorter text",
        )
    problem = task.result()
    if problem is not None:
        raise problem
    if answer.size > largest:
        raise Problem(
            413,
            "too_big",
            f"the answer to {path[:80]} has more than {largest:,} bytes",
            hint="shorten the text",
            limit=largest,
        )
    if answer.status != 200 or not answer.is_json:
        return None
    return b"".join(answer.chunks)


async def _called(app: ASGIApp, scope: dict[str, Any], answer: _Answer) -> Exception | None:
    """Call the application; what it raises is returned, for nobody may be waiting any more."""
    try:
        await app(scope, answer.receive, answer.send)
    except Exception as problem:
        return problem
    return None


class _Answer:
    """Both ends of a connection: the body of the request, and what comes back."""

    def __init__(self, body: bytes, largest: int) -> None:
        self.body: bytes | None = body
        self.largest = largest
        self.status = 0
        self.is_json = False
        self.size = 0
        self.chunks: list[bytes] = []

    async def receive(self) -> Message:
        """The body, then the end of the connection: a stream stops at once."""
        body, self.body = self.body, None
        if body is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            kinds = [value for name, value in message["headers"] if name == b"content-type"]
            self.is_json = any(kind.startswith(b"application/json") for kind in kinds)
        elif message["type"] == "http.response.body":
            chunk = message.get("body", b"")
            self.size += len(chunk)
            if self.is_json and self.size <= self.largest:
                self.chunks.append(chunk)
