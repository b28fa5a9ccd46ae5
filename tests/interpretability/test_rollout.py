"""Attention rollout: the product of the mixed layers, one number at a time."""

import pytest
import torch

from clearformer.explore.trace import trace
from clearformer.interpretability import attention_rollout

TOKENS = torch.tensor([5, 17, 3, 9, 17])


def test_equals_loops(gpt2):
    found = trace(gpt2, TOKENS)
    expected = torch.eye(5)
    for layer in range(3):
        mean = found.weights(layer).mean(0)
        mixed = torch.zeros(5, 5)
        for i in range(5):
            for j in range(5):
                mixed[i, j] = 0.5 * mean[i, j] + 0.5 * (i == j)
        expected = mixed @ expected
    rolled = attention_rollout(found)
    torch.testing.assert_close(rolled[-1], expected)
    torch.testing.assert_close(rolled.sum(-1), torch.ones(3, 5))
    assert rolled[-1].triu(1).abs().max() == 0


def test_without_attention_every_token_is_itself(gpt2):
    assert torch.equal(attention_rollout(trace(gpt2, TOKENS), residual=1.0)[-1], torch.eye(5))


def test_messages(gpt2):
    with pytest.raises(ValueError, match="`residual` is 2, but it must be at most 1"):
        attention_rollout(trace(gpt2, TOKENS), residual=2)
