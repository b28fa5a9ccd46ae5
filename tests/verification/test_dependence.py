"""Dependence of outputs on inputs, and where a leak starts."""

import torch

from clearformer.verification.dependence import dependence, first_leak, future, leak_origin


def test_causal_model_depends_on_lower_triangle(probe):
    table = dependence(probe("gpt"))
    assert not future(table).any()
    assert bool((table.diagonal() > 0).all())
    assert bool((table[-1] > 0).all())


def test_encoder_depends_on_every_position(probe):
    assert bool((dependence(probe("encoder")) > 0).all())


def test_first_leak_is_the_nearest():
    table = torch.zeros(4, 4)
    table[0, 3] = table[1, 2] = 1.0
    assert first_leak(table) == (1, 2)
    assert first_leak(table.tril()) is None


def test_leak_origin_is_planted_operation(probe):
    made = probe("gpt", "x = x + self.mlp(self.ln_2(x))", "x = x + self.mlp(x.flip(1))")
    origin = leak_origin(made, 3)
    assert origin.op.name == "flip"
    assert origin.op.place.module == "blocks.0"
