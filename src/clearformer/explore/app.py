"""The application: routes, pages, the gate before them, and errors in one shape."""

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
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.staticfiles import StaticFiles

import clearformer
from clearformer.explore.errors import Problem
from clearformer.explore.explorer import Explorer
from clearformer.explore.library import Library
from clearformer.explore.limits import THREADS, Limits
from clearformer.explore.responses import Failed
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
from clearformer.explore.security import LOOPBACK, Gate, answer

ROUTERS = [each.router for each in (models, traces, stream, generate, runs, tasks, lessons, export)]
STATIC = Path(str(files("clearformer.explore"))) / "static"
FAILURES: dict[int | str, dict[str, Any]] = {
    status: {"model": Failed} for status in (400, 401, 403, 404, 409, 413, 422, 429, 503)
}


def create_app(
    library: Library,
    *,
    token: str | None = None,
    hosts: Sequence[str] = LOOPBACK,
    limits: Limits = Limits(),
) -> FastAPI:
    """The explorer on these models, for pages that come under one of these names."""

    @asynccontextmanager
    async def living(app: FastAPI) -> AsyncIterator[None]:
        # Routes that look at files run in threads of this loop: few, for they share the machine.
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        yield
        library.close()
        app.state.explorer.lessons.close()

    app = FastAPI(
        title="clearformer explore",
        version=clearformer.__version__,
        # Their pages would fetch scripts from another host.
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=living,
        responses=FAILURES,
    )
    app.state.explorer = Explorer(library, limits)
    for router in ROUTERS:
        app.include_router(router)
    app.add_api_route("/", index, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=STATIC, check_dir=False), name="static")
    for kind, handler in (
        (Problem, _problem),
        (RequestValidationError, _invalid),
        (HTTPException, _refused),
        (ValueError, _mistake),
        (Exception, _defect),
    ):
        app.add_exception_handler(kind, handler)  # type: ignore[arg-type]
    # The one that is added last looks first.
    app.add_middleware(GZipMiddleware, minimum_size=2048, compresslevel=1)
    app.add_middleware(Gate, token=token)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
    return app


async def index() -> Response:
    path = STATIC / "index.html"
    if not path.is_file():
        return answer(Problem(503, "no_bundle", "the page was not built", hint="npm run build"))
    return FileResponse(path, media_type="text/html")


# --- errors --------------------------------------------------------------------------------


async def _problem(request: Request, problem: Problem) -> Response:
    return answer(problem)


async def _invalid(request: Request, problem: RequestValidationError) -> Response:
    """The first field that does not fit, by its name."""
    first = problem.errors()[0]
    names = [str(part)[:80] for part in first["loc"] if part not in ("body", "query", "path")]
    field = "body" if first["type"] == "json_invalid" else ".".join(names) or "body"
    return answer(Problem(422, "invalid", f"{field}: {first['msg']}", field=field))


async def _refused(request: Request, problem: HTTPException) -> Response:
    detail: Any = problem.detail
    if isinstance(detail, dict):
        return JSONResponse({"error": detail}, problem.status_code)
    codes = {404: "unknown", 405: "method", 413: "too_big"}
    code = codes.get(problem.status_code, "refused")
    return answer(Problem(problem.status_code, code, str(problem.detail)))


async def _mistake(request: Request, problem: ValueError) -> Response:
    """A sentence that the library wrote for its user."""
    return answer(Problem(422, "invalid", str(problem)))


async def _defect(request: Request, problem: Exception) -> Response:
    """A fault of ours: the terminal shows where, the page that it happened."""
    return answer(Problem(500, "defect", "something went wrong here; the terminal says where"))


if __name__ == "__main__":  # python -m clearformer.explore.app > web/openapi.json
    print(json.dumps(create_app(Library([])).openapi(), indent=1, sort_keys=True))
