"""Copies of a model that share its parameters."""

import torch
from torch import nn

from clearformer.builder import build
from clearformer.inference.packed_linear import FastLinear, replace_linears
from clearformer.inference.shared_copy import shared_copy


def test_copy_has_own_modules_and_shared_parameters(small):
    model = build(small("gpt2"))
    copy = shared_copy(model)
    replace_linears(copy)
    assert any(isinstance(each, FastLinear) for each in copy.modules())
    assert not any(isinstance(each, FastLinear) for each in model.modules())
    ours = dict(model.named_parameters())
    assert {name: id(p) for name, p in copy.named_parameters()} == {
        name: id(p) for name, p in ours.items()
    }


def test_updating_the_model_changes_the_copy():
    linear = nn.Linear(2, 2)
    copy = shared_copy(linear)
    with torch.no_grad():
        linear.weight.fill_(2)
    assert torch.equal(copy.weight, torch.full((2, 2), 2.0))
