"""Working copies with noise; random state and dtype are restored."""

import random

import pytest
import torch
from torch import nn

from clearformer.verification.noise import (
    MAX_PARAMETERS,
    add_noise,
    default_dtype,
    randomness,
    working_copy,
)


def test_zeros_become_noise_and_tied_weights_stay_tied():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    nn.init.zeros_(model[0].weight)
    model[1].weight = model[0].weight
    made = add_noise(working_copy(model), seed=1)
    assert made[0].weight is made[1].weight
    assert float(made[0].weight.detach().std()) > 0.1
    assert not model[0].weight.any()


def test_rejects_too_large_model(monkeypatch):
    monkeypatch.setattr("clearformer.verification.noise.MAX_PARAMETERS", 10)
    with pytest.raises(ValueError, match="has 20 parameters, but at most 10 are checked"):
        working_copy(nn.Linear(4, 4))
    assert MAX_PARAMETERS > 10**6


def test_rejects_model_that_cannot_be_copied():
    model = nn.Linear(2, 2)
    model.held = (x for x in ())
    with pytest.raises(ValueError, match=r"cannot be copied with copy.deepcopy"):
        working_copy(model)


def test_random_state_is_restored():
    torch.manual_seed(1)
    random.seed(1)
    before = torch.get_rng_state(), random.getstate()
    with randomness(7):
        torch.rand(3)
        random.random()
    assert before[0].equal(torch.get_rng_state())
    assert before[1] == random.getstate()


def test_default_dtype_is_restored():
    with default_dtype(torch.float64):
        assert torch.ones(1).dtype is torch.float64
    assert torch.ones(1).dtype is torch.float32
