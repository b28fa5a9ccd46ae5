"""Finding and using the cache of a model."""

import torch

from clearformer.verification.caching import find_cache, tensors_in


def test_finds_and_uses_tuple_cache(probe):
    made = probe("rotary")
    form = find_cache(made)
    assert form.label == "past"
    whole = made.run(made.base)
    assert made.differs(form.run(made, made.base, [4, 2, 1]), whole) == 0


def test_finds_clearformer_caches(probe):
    made = probe("ours_attention")
    form = find_cache(made)
    assert form.label == "clearformer caches"
    assert made.differs(form.run(made, made.base, [3, 4]), made.run(made.base)) == 0


def test_finds_no_cache_in_model_without_one(probe):
    assert find_cache(probe("gpt")) is None


def test_tensors_in_nested_caches():
    x = torch.ones(1)
    assert len(tensors_in([(x, x), {"k": x}])) == 3
