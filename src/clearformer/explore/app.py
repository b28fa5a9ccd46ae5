"""The FastAPI application: routes, static files, access control and error handlers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import anyio.to_thread
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

import clearformer
from clearformer.explore.errors import Problem
from clearformer.explore.explorer import Explorer
from clearformer.explore.library import Library
from clearformer.explore.limits import THREADS, Limits
from clearformer.explore.responses import ErrorResponse
from clearformer.explore.routes import (
    export,
    generate,
    lessons,
    models,
    runs,
    stream,
    tasks,
    traces,
)
from clearformer.explore.security import LOOPBACK, AccessMiddleware, error_response

ROUTERS = [each.router for each in (models, traces, stream, generate, runs, tasks, lessons, export)]
STATIC = Path(str(files("clearformer.explore"))) / "static"
FAILURES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse} for status in (400, 401, 403, 404, 409, 413, 422, 429, 503)
}
IN = ("body", "query", "path")  # where a field is, in a validation error
HTTP_CODES = {404: "unknown", 405: "method", 413: "too_big"}


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
    for kind in (Problem, RequestValidationError, HTTPException, ValueError, Exception):
        app.add_exception_handler(kind, _handle)
    # The middleware that is added last runs first.
    app.add_middleware(GZipMiddleware, minimum_size=2048, compresslevel=1)
    app.add_middleware(AccessMiddleware, token=token)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
    return app


async def index() -> Response:
    path = STATIC / "index.html"
    if not path.is_file():
        problem = Problem(503, "no_bundle", "the page was not built", hint="npm run build")
        return error_response(problem)
    return FileResponse(path, media_type="text/html")


# --- errors --------------------------------------------------------------------------------


async def _handle(request: Request, problem: Exception) -> Response:
    return error_response(as_problem(problem))


def as_problem(problem: Exception) -> Problem:
    """The error response for any exception."""
    match problem:
        case Problem():
            return problem
        case RequestValidationError():  # the first invalid field, by its name
            first = problem.errors()[0]
            names = [str(part)[:80] for part in first["loc"] if part not in IN]
            field = "body" if first["type"] == "json_invalid" else ".".join(names) or "body"
            return Problem(422, "invalid", f"{field}: {first['msg']}", field=field)
        case HTTPException(status_code=status):
            detail: Any = problem.detail
            if isinstance(detail, dict):
                return Problem(status, **detail)
            return Problem(status, HTTP_CODES.get(status, "refused"), str(detail))
        case ValueError():  # a message that the library wrote for its user
            return Problem(422, "invalid", str(problem))
        case _:  # a bug; uvicorn logs the traceback
            return Problem(500, "defect", "internal error: see the terminal for details")


if __name__ == "__main__":  # python -m clearformer.explore.app > web/openapi.json
    print(json.dumps(create_app(Library([])).openapi(), indent=1, sort_keys=True))
