"""Caches of models: found by trying, and run in pieces."""

import torch

from clearformer.verification.caching import find_cache, tensors_in


def test_a_cache_of_tuples_is_found_and_used(probe):
    made = probe("rotary")
    form = find_cache(made)
    assert form.label == "past"
    whole = made.run(made.base)
    assert made.differs(form.run(made, made.base, [4, 2, 1]), whole) == 0


def test_our_own_caches_are_found(probe):
    made = probe("ours_attention")
    form = find_cache(made)
    assert form.label == "clearformer caches"
    assert made.differs(form.run(made, made.base, [3, 4]), made.run(made.base)) == 0


def test_a_model_without_one_has_none(probe):
    assert find_cache(probe("gpt")) is None


def test_tensors_of_nested_caches():
    x = torch.ones(1)
    assert len(tensors_in([(x, x), {"k": x}])) == 3
