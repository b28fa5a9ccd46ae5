"""Responses about parts of a model reject what they do not know."""

import pytest
from pydantic import ValidationError

from clearformer.explore.part_responses import HeadPlan, Step


def test_unknown_fields_are_refused():
    assert Step(kind="add", which="mlp").heads is None
    with pytest.raises(ValidationError):
        HeadPlan(task="generate", outputs=1, tied=True, more=1)
