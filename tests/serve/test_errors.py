"""Errors in OpenAI's form."""

import json

import pytest

from clearformer.http_server.errors import Problem, bad_field
from clearformer.serve.errors import api_error


@pytest.mark.parametrize(
    ("problem", "status", "kind"),
    [
        (bad_field("n", "too many"), 400, "invalid_request_error"),
        (Problem(401, "x", "m"), 401, "authentication_error"),
        (Problem(404, "x", "m"), 404, "not_found_error"),
        (Problem(429, "x", "m"), 429, "rate_limit_error"),
        (Problem(503, "x", "m"), 503, "server_error"),
        (Problem(504, "x", "m"), 504, "server_error"),
    ],
)
def test_status_and_type(problem, status, kind):
    response = api_error(problem)
    error = json.loads(response.body)["error"]
    assert (response.status_code, error["type"]) == (status, kind)
    assert set(error) == {"message", "type", "param", "code"}
    assert ("retry-after" in response.headers) == (status in (429, 503))


def test_a_hint_is_part_of_the_sentence():
    body = json.loads(api_error(Problem(400, "x", "it is wrong", hint="mend it", field="n")).body)
    assert body["error"]["message"] == "it is wrong: mend it"
    assert body["error"]["param"] == "n"
