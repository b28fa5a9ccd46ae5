"""Bodies: what is accepted, and what is refused by its name."""

import pytest
from pydantic import ValidationError

from clearformer.serve.requests import ChatRequest, CompletionRequest, EmbeddingRequest


def test_the_ways_to_give_a_prompt():
    for prompt in ("a", [1, 2], ["a", "b"], [[1], [2, 3]]):
        assert CompletionRequest(model="m", prompt=prompt).prompt == prompt


def test_fields_that_clients_send_are_accepted():
    ChatRequest(model="m", messages=[], user="me", metadata={"a": 1}, store=False, n=None)
    assert EmbeddingRequest(model="m", input="x").encoding_format == "float"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 0), ("n", 1000), ("max_tokens", 0), ("temperature", float("nan")), ("top_p", 1.1),
        ("stop", ["x"] * 17), ("seed", 2**70), ("logprobs", 21), ("echo", True), ("unknown", 1),
        ("logit_bias", {}), ("prompt", [[-1]]), ("prompt", ["x"] * 129), ("prompt", [[1]] * 129),
    ],
)  # fmt: skip
def test_what_is_refused(field, value):
    with pytest.raises(ValidationError) as problem:
        CompletionRequest(**{"model": "m", "prompt": "x", field: value})
    assert problem.value.errors()[0]["loc"][0] == field
