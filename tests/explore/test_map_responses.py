"""The bodies of responses about maps: a model without vectors has no map."""

import pytest
from pydantic import ValidationError

from clearformer.explore.map_responses import MapResponse


def test_map_may_be_missing_and_nothing_else_may_be_there():
    none = {"kind": "positions", "positions": "rotary", "axes": None, "map": None}
    assert MapResponse.model_validate(none).map is None
    with pytest.raises(ValidationError):
        MapResponse.model_validate({**none, "more": 1})
