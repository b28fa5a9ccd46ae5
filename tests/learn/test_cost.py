"""The largest tensor that a function makes."""

import torch

from clearformer.learn.cost import largest_tensor


def test_the_largest_tensor_counts_what_a_view_shows():
    x = torch.ones(10)
    assert largest_tensor(lambda: x[:2] * 2) == 10
    assert largest_tensor(lambda: torch.ones(3, 4).sum()) == 12
