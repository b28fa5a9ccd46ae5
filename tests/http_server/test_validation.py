"""Sentences about bodies that pydantic refuses, through FastAPI."""

from typing import Annotated, Literal

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from clearformer.http_server.error_handlers import add_error_handlers
from clearformer.http_server.gate import error_response


def refuse(value):
    raise ValueError("is not welcome: leave it out")


class Inner(BaseModel):
    kind: Literal["a", "b"]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(max_length=3)] | list[int] = "x"
    several: Annotated[list[str], Field(min_length=1, max_length=2)] | Literal["all"] = ["a"]
    count: Annotated[int, Field(ge=0, lt=10_000)] = 1
    share: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.5
    flag: bool = False
    inner: list[Inner] = []
    never: Annotated[int, AfterValidator(refuse)] = 0
    wanted: str


@pytest.fixture(scope="module")
def client():
    app = FastAPI()

    @app.post("/body")
    async def body(body: Body):
        return {}

    @app.get("/query")
    async def query(number: int):
        return {}

    add_error_handlers(app, error_response)
    return TestClient(app)


CASES = [
    ('{"wanted": 3}', "wanted", "wanted is 3, but it must be a string"),
    ("{}", "wanted", "wanted is missing: add it"),
    ('{"wanted": "x", "wish": 1}', "wish", "wish is not supported here: leave it out"),
    ('{"wanted": "x", "text": 5}', "text", "text is 5, but it must be a string or a list"),
    (
        '{"wanted": "x", "text": [1, "b"]}',
        "text[1]",
        'text[1] is "b", but it must be an integer',
    ),
    (
        '{"wanted": "x", "text": "abcd"}',
        "text",
        "text has 4 characters, but it must have at most 3",
    ),
    (
        '{"wanted": "x", "several": []}',
        "several",
        "several has 0 values, but it must have at least 1",
    ),
    (
        '{"wanted": "x", "several": ["a", "b", "c"]}',
        "several",
        "several has 3 values, but it must have at most 2",
    ),
    ('{"wanted": "x", "count": -1}', "count", "count is -1, but it must be at least 0"),
    ('{"wanted": "x", "count": 1e6}', "count", "count is 1000000.0, but it must be below 10,000"),
    ('{"wanted": "x", "count": 1.5}', "count", "count is 1.5, but it must be an integer"),
    ('{"wanted": "x", "share": 0}', "share", "share is 0, but it must be above 0"),
    ('{"wanted": "x", "share": 2}', "share", "share is 2, but it must be at most 1"),
    ('{"wanted": "x", "share": NaN}', "share", "share is NaN, but it must be a finite number"),
    ('{"wanted": "x", "flag": "maybe"}', "flag", 'flag is "maybe", but it must be true or false'),
    (
        '{"wanted": "x", "inner": [{"kind": "a"}, {"kind": "c"}]}',
        "inner[1].kind",
        "inner[1].kind is \"c\", but it must be 'a' or 'b'",
    ),
    (
        '{"wanted": "x", "inner": [3]}',
        "inner[0]",
        "inner[0] is 3, but it must be an object",
    ),
    ('{"wanted": "x", "never": 1}', "never", "never is not welcome: leave it out"),
    ("[]", "body", "body is [], but it must be an object"),
    ("", "body", "the body is empty: send JSON"),
]


@pytest.mark.parametrize(("body", "field", "sentence"), CASES)
def test_first_invalid_field(client, body, field, sentence):
    response = client.post("/body", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 422
    error = response.json()["error"]
    assert (error["message"], error["field"]) == (sentence, field)


def test_long_values_are_shortened(client):
    found = client.post("/body", json={"wanted": "x", "count": "y" * 500}).json()["error"]
    assert found["message"].startswith('count is "yyy')
    assert len(found["message"]) < 120


def test_bodies_that_are_no_json(client):
    header = {"content-type": "application/json"}
    found = client.post("/body", content='{"a"', headers=header).json()["error"]
    assert found["message"].startswith("the body is not JSON (")
    response = client.post("/body", content=b'{"wanted": "\xff"}', headers=header)
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("the body cannot be read: send JSON")


def test_parameters_of_the_address(client):
    found = client.get("/query?number=x").json()["error"]
    assert found["message"] == 'number is "x", but it must be an integer'


def test_routes_and_methods(client):
    assert client.get("/nowhere").json()["error"]["message"] == (
        "there is no route '/nowhere': check the address"
    )
    response = client.get("/body")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert response.json()["error"]["message"] == "'/body' does not take GET: use POST"
