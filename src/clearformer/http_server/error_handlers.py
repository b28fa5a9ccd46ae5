"""Error handlers: every exception of a request becomes a `Problem`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from clearformer.http_server.errors import Problem
from clearformer.http_server.validation import describe_invalid

HTTP_CODES = {404: "unknown", 405: "method", 413: "too_big"}


def add_error_handlers(app: FastAPI, respond: Callable[[Problem], Response]) -> None:
    """Answer every exception with what `respond` makes of it."""

    async def handle(request: Request, problem: Exception) -> Response:
        response = respond(as_problem(problem, request))
        if isinstance(problem, HTTPException) and problem.headers:  # Allow, of a wrong method
            response.headers.update(problem.headers)
        return response

    for kind in (Problem, RequestValidationError, HTTPException, ValueError, Exception):
        app.add_exception_handler(kind, handle)


def as_problem(problem: Exception, request: Request | None = None) -> Problem:
    """The error response for any exception."""
    match problem:
        case Problem():
            return problem
        case RequestValidationError():
            message, field = describe_invalid(problem.errors(), problem.body)
            return Problem(422, "invalid", message, field=field)
        case HTTPException(status_code=status):
            detail: Any = problem.detail
            if isinstance(detail, dict):
                return Problem(status, **detail)
            message = _explained(problem, request) if request is not None else str(detail)
            return Problem(status, HTTP_CODES.get(status, "refused"), message)
        case ValueError():  # a message that the library wrote for its user
            return Problem(422, "invalid", str(problem))
        case _:  # a bug; uvicorn logs the traceback
            return Problem(500, "defect", "internal error: see the terminal for details")


def _explained(problem: HTTPException, request: Request) -> str:
    """What Starlette and FastAPI refuse by themselves, as a sentence."""
    method, path = request.method, request.url.path[:80]
    match problem.status_code:
        case 404:
            return f"there is no route {path!r}: check the address"
        case 405:
            allowed = (problem.headers or {}).get("Allow", "another method")
            return f"{path!r} does not take {method[:20]}: use {allowed}"
        case 400:
            return "the body cannot be read: send JSON in UTF-8, without hundreds of nested levels"
        case _:
            return str(problem.detail)
