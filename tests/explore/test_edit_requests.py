"""Requests for edits: what is refused before anything is computed."""

import pytest
from pydantic import ValidationError

from clearformer.explore.edit_requests import EditRequest


@pytest.mark.parametrize(
    "body",
    [
        {"heads_off": [{"layer": 0}]},
        {"weights": [{"layer": 0, "head": 0, "i": 0, "j": 0, "weight": 1.5}]},
        {"weights": [{"layer": 0, "head": 0, "i": 0, "j": 0, "weight": "nan"}]},
        {"patch": {"layer": 0}},
        {"patch": {"layer": 0, "text": "a", "stage": "logits"}},
        {"heads_off": [{"layer": 0, "head": 0}] * 1001},
        {"unknown": 1},
    ],
)
def test_refused(body):
    with pytest.raises(ValidationError):
        EditRequest(**body)


def test_empty_is_allowed():
    assert EditRequest().i == -1
