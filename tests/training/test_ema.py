"""Exponential moving average of the weights."""

import torch

from clearformer.training.ema import EMA


def test_ema_matches_formula_and_is_swapped_temporarily():
    model = torch.nn.Linear(2, 2)
    average = EMA(model, decay=0.9)
    expected = model.weight.detach().clone()
    for step in range(300):
        with torch.no_grad():
            model.weight.add_(torch.randn(2, 2))
        average.update(model, step)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * model.weight.detach()
    torch.testing.assert_close(average.weights["weight"], expected)
    own = model.weight.detach().clone()
    with average.applied_to(model):
        torch.testing.assert_close(model.weight.detach(), expected)
    assert model.weight.detach().equal(own)
