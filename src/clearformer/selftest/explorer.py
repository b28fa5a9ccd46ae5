"""G10: the explorer answers only its own pages, whatever route and whoever asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clearformer.selftest.processes import Skipped, require

EVIL = ("evil.test", "[::1]", "203.0.113.7", "127.0.0.1.evil.test", "")


def application(place: Path) -> Any:
    """The explorer itself, on what is in `place`."""
    try:
        from clearformer.explore.app import create_app
        from clearformer.explore.library import Library
    except ImportError as problem:
        raise Skipped(f"the explorer needs {problem.name}") from None
    return create_app(Library([place]))


def routes(place: Path, made: Callable[[Path], Any] = application) -> str:
    """Every route of the app itself, asked under foreign names and from foreign pages."""
    application = made(place)
    described = application.openapi()["paths"]
    found = sorted(
        (path, method.upper()) for path, methods in described.items() for method in methods
    )
    found += [("/", "GET"), ("/static/x", "GET"), ("/nowhere", "GET")]
    tried = 0
    for path, method in found:
        for host in EVIL:
            status = asyncio.run(_ask(application, method, path, host, None))
            require(status == 400, f"{method} {path} for host {host!r}: {status} and not 400")
            tried += 1
        if method == "POST":
            status = asyncio.run(_ask(application, method, path, "127.0.0.1", "http://evil.test"))
            require(status == 403, f"POST {path} from a foreign page: {status} and not 403")
            tried += 1
    return f"{len(found)} routes, {tried} foreign requests, none let in"


async def _ask(application: Any, method: str, path: str, host: str, origin: str | None) -> int:
    """The status that an ASGI application answers with; no server, no socket, no client needed."""
    headers = [(b"host", host.encode()), (b"content-type", b"application/json")]
    if origin is not None:
        headers.append((b"origin", origin.encode()))
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path.replace("{", "").replace("}", ""),
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
    }
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await asyncio.wait_for(application(scope, receive, send), 10)
    return statuses[0]
