"""The FastAPI application: routes, static files, access control and error handlers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import anyio.to_thread
from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

import clearformer
from clearformer.explore.explorer import Explorer
from clearformer.explore.library import Library
from clearformer.explore.limits import THREADS, Limits
from clearformer.explore.responses import ErrorResponse
from clearformer.explore.routes import (
    edits,
    export,
    generate,
    lessons,
    maps,
    models,
    parts,
    runs,
    stream,
    tasks,
    traces,
)
from clearformer.explore.token_cookie import TokenCookie
from clearformer.http_server.error_handlers import add_error_handlers
from clearformer.http_server.errors import Problem
from clearformer.http_server.gate import (
    LOOPBACK,
    AccessMiddleware,
    HostMiddleware,
    authorize_all,
    error_response,
)

ROUTE_MODULES = (models, traces, parts, maps, edits, stream, generate, runs, tasks, lessons, export)
ROUTERS = [each.router for each in ROUTE_MODULES]
STATIC = Path(str(files("clearformer.explore"))) / "static"
FAILURES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse} for status in (400, 401, 403, 404, 409, 413, 422, 429, 503)
}


def create_app(
    library: Library,
    *,
    token: str | None = None,
    hosts: Sequence[str] = LOOPBACK,
    limits: Limits = Limits(),
) -> FastAPI:
    """The explorer for a library of models, served under the given host names."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # Routes that read files run in threads: few, as they share the machine.
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        yield
        library.close()
        app.state.explorer.lessons.close()

    app = FastAPI(
        title="clearformer explore",
        version=clearformer.__version__,
        # The documentation pages would load scripts from another host.
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=lifespan,
        responses=FAILURES,
    )
    app.state.explorer = Explorer(library, limits)
    for router in ROUTERS:
        app.include_router(router)
    app.add_api_route("/", index, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=STATIC, check_dir=False), name="static")
    add_error_handlers(app, error_response)
    # The middleware that is added last runs first.
    app.add_middleware(GZipMiddleware, minimum_size=2048, compresslevel=1)
    authorize = authorize_all if token is None else TokenCookie(token)
    # A form on a page of another site sends no JSON, so this is refused like a foreign origin.
    app.add_middleware(AccessMiddleware, authorize=authorize, not_json=403)
    app.add_middleware(HostMiddleware, allowed_hosts=hosts, respond=error_response)
    return app


async def index() -> Response:
    path = STATIC / "index.html"
    if not path.is_file():
        problem = Problem(503, "no_bundle", "the page was not built", hint="npm run build")
        return error_response(problem)
    return FileResponse(path, media_type="text/html")


if __name__ == "__main__":  # python -m clearformer.explore.app > web/openapi.json
    print(json.dumps(create_app(Library([])).openapi(), indent=1, sort_keys=True))
