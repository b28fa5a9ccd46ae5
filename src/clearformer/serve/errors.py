"""Errors in the form that clients of the OpenAI API expect."""

from __future__ import annotations

import json

from starlette.responses import Response

from clearformer.http_server.errors import Problem

INVALID = 422  # what validation gives; this API has one status for all that is wrong in a request
KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
RETRY_SECONDS = "1"


def error_body(problem: Problem) -> dict[str, object]:
    """The body of an error: message, type, param and code."""
    details = problem.body["error"]
    hint = details.get("hint")
    message = details["message"] if hint is None else f"{details['message']}: {hint}"
    return {
        "error": {
            "message": message,
            "type": error_type(api_status(problem)),
            "param": details.get("field"),
            "code": details["code"],
        }
    }


def error_type(status: int) -> str:
    return KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")


def api_status(problem: Problem) -> int:
    return 400 if problem.status == INVALID else problem.status


def api_error(problem: Problem) -> Response:
    """An error as a response; a client may try again after 429 and 503."""
    status = api_status(problem)
    headers = {"retry-after": RETRY_SECONDS} if status in (429, 503) else {}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    # ASCII, because a message may quote half a surrogate pair, which UTF-8 cannot encode.
    text = json.dumps(error_body(problem))
    return Response(text, status_code=status, headers=headers, media_type="application/json")
