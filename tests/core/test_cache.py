"""Caches: what is committed, what is pending, and which inputs are rejected."""

import re

import pytest
import torch

from clearformer.core.attention import Attention
from clearformer.core.cache import NO_CACHE, FrozenKV, HiddenMemory, KVCache
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal, Full
from clearformer.core.positions import Rotary

BATCH, HEADS, KEY_HEADS, WIDTH = 2, 4, 2, 16


@pytest.fixture
def attention():
    return Attention(WIDTH, HEADS, key_heads=KEY_HEADS, position=Rotary())


@pytest.fixture
def x():
    return torch.randn(BATCH, 7, WIDTH)


def read(cache, x, attention):
    """Queries of x and all keys and values, as attention has them before it scores."""
    q, k, v = attention.project_heads(x, cache.sources(x))
    q, k = attention.rotate(q, k, end=cache.start + x.shape[1])
    return q, *cache.extend(k, v)


def assert_all_close(given, expected):
    for one, other in zip(given, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_no_cache_returns_current_tokens_only(attention, x):
    assert NO_CACHE.length == 0
    assert NO_CACHE.sources(x) == (x,)
    k, v = torch.randn(2, BATCH, KEY_HEADS, 7, 4)
    assert NO_CACHE.extend(k, v) == (k, v)


def test_kv_cache_continues_after_committed_tokens(attention, x):
    held = KVCache()
    q, k, v = read(NO_CACHE, x, attention)
    with torch.no_grad():
        for start, end in [(0, 3), (3, 4), (4, 7)]:
            assert held.length == start
            now_q, now_k, now_v = read(held, x[:, start:end], attention)
            assert_all_close(
                (now_q, now_k, now_v), (q[:, :, start:end], k[:, :, :end], v[:, :, :end])
            )
            held.advance()
    assert held.length == 7


def test_kv_cache_discards_uncommitted_tokens(attention, x):
    held = KVCache()
    with torch.no_grad():
        read(held, x[:, :3], attention)
        held.advance()
        read(held, torch.randn(BATCH, 2, WIDTH), attention)  # a draft that is thrown away
        again = read(held, x[:, 3:], attention)
    assert held.length == 3
    assert_all_close(again[1:], read(NO_CACHE, x, attention)[1:])
    held.advance()
    held.advance()  # nothing is pending any more
    assert held.length == 7


def test_frozen_kv_returns_context_keys_and_values(x):
    attention = Attention(WIDTH, HEADS, key_heads=KEY_HEADS)
    context = torch.randn(BATCH, 5, WIDTH)
    frozen = attention.freeze(context)
    q, k, v = read(frozen, x, attention)
    assert isinstance(frozen, FrozenKV)
    assert_all_close((k, v), attention.keys_values(context))
    torch.testing.assert_close(q, read(NO_CACHE, x, attention)[0])
    with pytest.raises(ValueError, match=r"^the source holds 2 sequences of width 4, but"):
        attention(x[:1], Mask(Full()), frozen)
    frozen.advance()
    assert frozen.length == 0


def test_hidden_memory_holds_last_states(attention, x):
    memory = HiddenMemory(capacity=4)
    segments = x.split((2, 1, 3, 1), dim=1)
    seen = x[:, :0]
    for segment in segments:
        assert memory.length == min(4, seen.shape[1])
        read(memory, segment, attention)
        memory.advance()
        seen = torch.cat((seen, segment), dim=1)
        assert torch.equal(memory.states, seen[:, -4:])


def test_hidden_memory_states_precede_current_tokens(attention, x):
    memory = HiddenMemory(capacity=5)
    read(memory, x[:, :5], attention)
    memory.advance()
    q, k, v = read(NO_CACHE, x, attention)
    assert_all_close(read(memory, x[:, 5:], attention), (q[:, :, 5:], k, v))


def test_hidden_memory_changes_only_on_advance(attention, x):
    memory = HiddenMemory(capacity=4)
    read(memory, x[:, :4], attention)
    assert memory.length == 0
    memory.advance()
    first = read(memory, x[:, 4:], attention)
    assert_all_close(read(memory, x[:, 4:], attention), first)
    memory.advance()
    memory.advance()  # nothing is pending any more
    assert torch.equal(memory.states, x[:, -4:])


def test_hidden_memory_with_zero_capacity_equals_no_cache(attention, x):
    memory = HiddenMemory(capacity=0)
    for _ in range(2):
        assert_all_close(read(memory, x, attention), read(NO_CACHE, x, attention))
        memory.advance()
        assert memory.length == 0


def test_hidden_memory_stops_gradients(attention, x):
    first, second = x[:, :4].clone().requires_grad_(), x[:, 4:].clone().requires_grad_()
    memory = HiddenMemory(capacity=4)
    attention(first, Mask(Causal()), memory)
    memory.advance()
    assert not memory.states.requires_grad
    attention(second, Mask(Causal()), memory).sum().backward()
    assert first.grad is None
    assert second.grad.any()


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (
            (3, 2, WIDTH),
            "the memory holds 2 sequences of width 16, but the input has 3 of width 16: "
            "start with a new memory",
        ),
        (
            (BATCH, 2, 8),
            "the memory holds 2 sequences of width 16, but the input has 2 of width 8: "
            "start with a new memory",
        ),
    ],
)
def test_hidden_memory_rejects_other_batch_shape(attention, x, shape, message):
    memory = HiddenMemory(capacity=4)
    read(memory, x, attention)
    memory.advance()
    other = Attention(shape[-1], HEADS)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read(memory, torch.randn(shape), other)
