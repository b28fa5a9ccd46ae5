"""Error handlers: every exception of a request becomes a `Problem`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from clearformer.http_server.errors import Problem

IN = ("body", "query", "path")  # where a field is, in a validation error
HTTP_CODES = {404: "unknown", 405: "method", 413: "too_big"}


def add_error_handlers(app: FastAPI, respond: Callable[[Problem], Response]) -> None:
    """Answer every exception with what `respond` makes of it."""

    async def handle(request: Request, problem: Exception) -> Response:
        return respond(as_problem(problem))

    for kind in (Problem, RequestValidationError, HTTPException, ValueError, Exception):
        app.add_exception_handler(kind, handle)


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
