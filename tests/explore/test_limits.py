"""Limits of the server."""

import pytest

from clearformer.explore.limits import Limits


def test_max_tokens_has_upper_bound():
    assert Limits(max_tokens=1024).max_tokens == 1024
    assert Limits().max_tokens == 512
    for count in (0, 1025):
        with pytest.raises(ValueError, match=f"max-tokens is {count}, but it must be from 1"):
            Limits(max_tokens=count)
