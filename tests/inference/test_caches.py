"""Inference caches: same values as the caches of core, preallocated, with row selection."""

import re

import pytest
import torch

from clearformer.config import HiddenMemory as HiddenMemoryConfig
from clearformer.core.attention import Attention
from clearformer.core.cache import NO_CACHE, HiddenMemory
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal, Full
from clearformer.core.positions import Rotary
from clearformer.inference.caches import (
    KVMemory,
    StaticKVCache,
    inference_caches,
    select_sources,
)

BATCH, HEADS, KEY_HEADS, WIDTH = 2, 4, 2, 16
HEAD_WIDTH = WIDTH // HEADS


@pytest.fixture
def attention():
    return Attention(WIDTH, HEADS, key_heads=KEY_HEADS, position=Rotary())


@pytest.fixture
def x():
    return torch.randn(BATCH, 7, WIDTH)


def cache(capacity):
    return StaticKVCache(BATCH, KEY_HEADS, capacity, HEAD_WIDTH)


def read(cache, x, attention):
    """Queries of x and all keys and values, as attention has them before it scores."""
    q, k, v = attention.project_heads(x, cache.sources(x))
    q, k = attention.rotate(q, k, end=cache.start + x.shape[1])
    return q, *cache.extend(k, v)


def assert_all_close(given, expected):
    for one, other in zip(given, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_static_kv_cache_writes_in_place(attention, x):
    held = cache(capacity=7)
    place = held.keys.data_ptr()
    with torch.inference_mode():
        _, keys, values = read(held, x, attention)
    assert held.keys.data_ptr() == keys.data_ptr() == place
    assert values.data_ptr() == held.values.data_ptr()


@torch.no_grad()
def test_full_cache_error_names_needed_capacity(attention, x):
    held = cache(capacity=8)
    read(held, x, attention)
    held.advance()
    message = "the cache was made with capacity=8, but this step needs 10: make it with capacity=10"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read(held, x[:, :3], attention)


@pytest.mark.parametrize("size", [1, 3])
@torch.no_grad()
def test_rejects_other_batch_size(attention, size):
    message = (
        f"the cache was made with batch=2, but this step needs {size}: make it with batch={size}"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read(cache(capacity=7), torch.randn(size, 4, WIDTH), attention)


@torch.no_grad()
def test_rejects_other_dtype(attention, x):
    message = (
        "the cache was made with dtype=torch.float32, but this step needs torch.bfloat16: "
        "make it with dtype=torch.bfloat16"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read(cache(capacity=7), x.bfloat16(), attention.bfloat16())


def test_static_kv_cache_rejects_gradients(attention, x):
    message = (
        "a StaticKVCache has no gradient: train with the caches of core, or run the model "
        "under torch.inference_mode() or torch.no_grad()"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read(cache(capacity=7), x, attention)


@torch.no_grad()
def test_forget_removes_last_tokens(attention, x):
    held = cache(capacity=7)
    read(held, x[:, :5], attention)
    held.advance()
    held.forget(2)
    assert held.length == 3
    again = read(held, x[:, 3:], attention)
    assert_all_close(again[1:], read(NO_CACHE, x, attention)[1:])


@torch.no_grad()
def test_select_keeps_chosen_sequences(attention, x):
    for held in (cache(capacity=7), KVMemory(capacity=7)):
        read(held, x[:, :4], attention)
        held.advance()
        held.select(torch.tensor([1, 1, 0]))
        expected = read(NO_CACHE, x[[1, 1, 0]], attention)
        assert_all_close(read(held, x[[1, 1, 0], 4:], attention)[1:], expected[1:])


def test_kv_memory_cannot_forget():
    KVMemory(capacity=4).forget(0)
    with pytest.raises(ValueError, match=r"^a KVMemory has dropped earlier tokens"):
        KVMemory(capacity=4).forget(1)


@torch.no_grad()
@pytest.mark.parametrize("capacity", [0, 1, 4, 99])
def test_kv_memory_matches_hidden_memory(attention, capacity):
    """Rotary keys stay rotated as they were: only distances matter."""
    x = torch.randn(BATCH, 17, WIDTH)
    states, keys = HiddenMemory(capacity), KVMemory(capacity)
    for part in x.split((3, 1, 1, 5, 2, 4, 1), dim=1):
        assert states.length == keys.length
        for _ in range(2):  # read again before it is committed: the same
            y = attention(part, Mask(Causal()), keys)
        torch.testing.assert_close(y, attention(part, Mask(Causal()), states))
        states.advance()
        keys.advance()
        keys.advance()  # nothing is pending any more


def test_kv_memory_rejects_gradients_and_other_batch_size(attention, x):
    with pytest.raises(ValueError, match=r"^a KVMemory has no gradient: train with the"):
        read(KVMemory(4), x, attention)
    memory = KVMemory(4)
    with torch.no_grad():
        read(memory, x, attention)
        memory.advance()
        with pytest.raises(ValueError, match=r"^the memory holds 2 sequences of .* has 1 of width"):
            read(memory, x[:1], attention)


@torch.no_grad()
def test_select_and_copy_preserve_row_contents():
    attention = Attention(WIDTH, 4).eval()
    x = torch.randn(3, 5, WIDTH)
    mask = Mask(Causal())
    for make in (
        lambda: StaticKVCache(3, 4, 4, WIDTH // 4),
        lambda: KVMemory(9),
    ):
        held = make()
        attention(x[:, :3], mask, held)
        held.advance()
        held.copy(torch.tensor([0, 2]), torch.tensor([2, 0]))  # the two change places
        held.select(torch.tensor([2, 2, 1]))  # what is in row 2 now is sequence 0
        if isinstance(held, StaticKVCache):
            held.grow(6)
        rows = torch.tensor([0, 0, 1])
        given = attention(x[rows, 3:], mask, held)
        torch.testing.assert_close(given, attention(x[rows], mask)[:, 3:], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_select_sources_follows_sequences():
    attention = Attention(WIDTH, 4).eval()
    context, x = torch.randn(2, 7, WIDTH), torch.randn(3, 3, WIDTH)
    rows = torch.tensor([1, 1, 0])
    frozen = attention.freeze(context)
    select_sources([frozen], rows)
    expected = attention(x, Mask(Full()), attention.freeze(context[rows]))
    torch.testing.assert_close(attention(x, Mask(Full()), frozen), expected)


def test_inference_caches_have_shape_of_config(small):
    caches = inference_caches(small("modern"), batch=3, capacity=5, dtype=torch.bfloat16)
    assert [type(each) for each in caches] == [StaticKVCache] * 2
    assert caches[0].keys.shape == caches[0].values.shape == (3, 2, 5, 4)
    assert caches[0].keys.dtype == torch.bfloat16
    assert caches[0].keys.data_ptr() != caches[1].keys.data_ptr()
    memories = inference_caches(small("xl", cache=HiddenMemoryConfig(length=7)), 3, 5)
    assert [(type(each), each.capacity) for each in memories] == [(KVMemory, 7)] * 2
    with pytest.raises(ValueError, match=r"^bert-base is not causal and has no cache: run"):
        inference_caches(small("bert"), 1, 4)
