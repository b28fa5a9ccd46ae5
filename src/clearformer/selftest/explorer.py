"""G10: the explorer refuses requests of other sites, on every route."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clearformer.selftest.processes import Skipped, require

FOREIGN_HOSTS = ("evil.test", "[::1]", "203.0.113.7", "127.0.0.1.evil.test", "")


def application(workdir: Path) -> Any:
    """The explorer on the models in `workdir`."""
    try:
        from clearformer.explore.app import create_app
        from clearformer.explore.library import Library
    except ImportError as problem:
        raise Skipped(f"the explorer needs {problem.name}") from None
    return create_app(Library([workdir]))


def routes(workdir: Path, make: Callable[[Path], Any] = application) -> str:
    """Request every route under foreign host names and from foreign pages."""
    app = make(workdir)
    targets = sorted(
        (path, method.upper())
        for path, methods in app.openapi()["paths"].items()
        for method in methods
    )
    targets += [("/", "GET"), ("/static/x", "GET"), ("/nowhere", "GET")]
    count = 0
    for path, method in targets:
        for host in FOREIGN_HOSTS:
            status = _status(app, method, path, host)
            require(status == 400, f"{method} {path} for host {host!r}: {status} and not 400")
            count += 1
        if method == "POST":
            status = _status(app, method, path, "127.0.0.1", (b"origin", b"http://evil.test"))
            require(status == 403, f"POST {path} from a foreign page: {status} and not 403")
            count += 1
    return f"{len(targets)} routes, {count} foreign requests, all refused"


def _status(app: Any, method: str, path: str, host: str, *headers: tuple[bytes, bytes]) -> int:
    """The status of a response, without a server or a socket."""
    from clearformer.explore.in_process_client import Exchange

    exchange = Exchange(b"{}")
    target = path.replace("{", "").replace("}", "")
    sending = exchange.run(app, method, target, [(b"host", host.encode()), *headers])
    problem = asyncio.run(asyncio.wait_for(sending, 10))
    if problem is not None:
        raise problem
    return exchange.status
