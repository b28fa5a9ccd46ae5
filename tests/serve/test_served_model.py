"""A model behind the server: compiled schemas are kept, and only so many."""

import pytest

from clearformer.http_server.errors import Problem
from clearformer.serve import served_model
from clearformer.serve.limits import ServeLimits
from clearformer.serve.metrics import Metrics
from clearformer.serve.requests import CompletionRequest
from clearformer.serve.served_model import ServedModel


@pytest.fixture
def served(models):
    return ServedModel("chat", models["chat"], ServeLimits(), Metrics())


def request(schema, **more):
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    return CompletionRequest(model="chat", prompt="x", response_format=wanted, **more)


def constraint(served, schema):
    (sequence,) = served.completion_sequences(request(schema))
    return sequence.config.constraint


def test_a_schema_is_compiled_once_and_the_oldest_is_forgotten(served, monkeypatch):
    monkeypatch.setattr(served_model, "MAX_CONSTRAINTS", 2)
    one = constraint(served, {"const": 1})
    assert constraint(served, {"const": 1}) is one
    for number in (2, 3):
        constraint(served, {"const": number})
    assert len(served._constraints) == 2
    assert constraint(served, {"const": 1}) is not one


def test_seeds_and_samples(served):
    made = served.completion_sequences(CompletionRequest(model="chat", prompt="x", n=3, seed=5))
    assert [sequence.index for sequence in made] == [0, 1, 2]
    assert {sequence.config.max_tokens for sequence in made} == {16}


def test_a_model_that_does_not_generate_has_no_writer(models):
    served = ServedModel("labels", models["labels"], ServeLimits(), Metrics())
    assert served.writer is None
    with pytest.raises(Problem, match="it can classify and embed, not generate"):
        served.completion_sequences(CompletionRequest(model="labels", prompt="x"))
