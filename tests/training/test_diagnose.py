"""Diagnosing failed training."""

import math

import torch

from clearformer.core.model import Batch
from clearformer.training.diagnose import first_non_finite, not_learning


def test_first_non_finite_module_is_named(generator_model):
    tokens = torch.randint(20, (2, 12))
    batch = Batch(tokens, tokens)
    assert first_non_finite(generator_model, [batch]) is None
    with torch.no_grad():
        generator_model.stack.blocks[1].attention.output.weight[0, 0] = float("inf")
        generator_model.stack.blocks[1].feed_forward.down.weight[0, 0] = float("nan")
    assert first_non_finite(generator_model, [batch]) == "stack.blocks.1.attention.output"
    assert not generator_model.stack.blocks[1].attention.output._forward_hooks


def test_not_learning_detects_loss_at_chance():
    chance = math.log(256)
    assert "a uniform guess (5.545)" in not_learning([chance + 0.01] * 60, chance)
    assert not_learning([chance + 1] * 60, chance)  # worse than knowing nothing
    assert not_learning([chance] * 10, chance) is None
    assert not_learning([4.0] * 60, chance) is None
