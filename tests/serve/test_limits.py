"""Limits that a user may change."""

import pytest

from clearformer.serve.limits import ServeLimits


@pytest.mark.parametrize(
    "changes",
    [{"max_batch": 0}, {"max_queue": -1}, {"max_tokens": 0}, {"timeout": 0}, {"drain_seconds": -1}],
)
def test_what_is_out_of_range_is_refused_by_its_name(changes):
    (name,) = changes
    with pytest.raises(ValueError, match=f"`{name}` is"):
        ServeLimits(**changes)
