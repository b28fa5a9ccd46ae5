"""Every exception becomes a problem with a status; a bug tells nothing about itself."""

import pytest
from starlette.exceptions import HTTPException

from clearformer.http_server.error_handlers import as_problem
from clearformer.http_server.errors import Problem


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Problem(429, "busy", "wait"), 429, "busy"),
        (HTTPException(404, "Not Found"), 404, "unknown"),
        (HTTPException(405, "no"), 405, "method"),
        (HTTPException(418, "no"), 418, "refused"),
        (HTTPException(413, {"code": "too_big", "message": "x"}), 413, "too_big"),
        (ValueError("a sentence"), 422, "invalid"),
        (ZeroDivisionError("secret"), 500, "defect"),
    ],
)
def test_each_kind(error, status, code):
    problem = as_problem(error)
    assert (problem.status, problem.body["error"]["code"]) == (status, code)
    assert "secret" not in problem.body["error"]["message"]
