"""Where keys and values come from: what is committed, what is pending, what is refused."""

import re

import pytest
import torch

from clearformer.core.attention import Attention
from clearformer.core.cache import NO_CACHE, FrozenKV, HiddenMemory, KVCache, KVMemory
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal, Full
from clearformer.core.positions import Rotary

BATCH, HEADS, KEY_HEADS, WIDTH = 2, 4, 2, 16
HEAD_WIDTH = WIDTH // HEADS


@pytest.fixture
def attention():
    return Attention(WIDTH, HEADS, key_heads=KEY_HEADS, position=Rotary())


@pytest.fixture
def x():
    return torch.randn(BATCH, 7, WIDTH)


def cache(capacity):
    return KVCache(BATCH, KEY_HEADS, capacity, HEAD_WIDTH)


def assert_all_close(given, expected):
    for one, other in zip(given, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_no_past_has_only_the_tokens_at_hand(attention, x):
    assert NO_CACHE.length == 0
    assert_all_close(NO_CACHE.read(x, attention), attention.queries_keys_values(x, start=0))


def test_a_cache_continues_where_it_was_committed(attention, x):
    past = cache(capacity=7)
    q, k, v = attention.queries_keys_values(x, start=0)
    with torch.no_grad():
        for start, end in [(0, 3), (3, 4), (4, 7)]:
            assert past.length == start
            now_q, now_k, now_v = past.read(x[:, start:end], attention)
            assert_all_close(
                (now_q, now_k, now_v), (q[:, :, start:end], k[:, :, :end], v[:, :, :end])
            )
            past.advance()
    assert past.length == 7


def test_a_cache_may_be_read_again_before_it_is_committed(attention, x):
    past = cache(capacity=7)
    with torch.no_grad():
        past.read(x[:, :3], attention)
        past.advance()
        past.read(torch.randn(BATCH, 2, WIDTH), attention)  # a draft that is thrown away
        again = past.read(x[:, 3:], attention)
    assert past.length == 3
    assert_all_close(again[1:], attention.queries_keys_values(x, start=0)[1:])
    past.advance()
    past.advance()  # nothing is pending any more
    assert past.length == 7


def test_a_cache_is_written_in_place(attention, x):
    past = cache(capacity=7)
    place = past.keys.data_ptr()
    with torch.inference_mode():
        _, keys, values = past.read(x, attention)
    assert past.keys.data_ptr() == keys.data_ptr() == place
    assert values.data_ptr() == past.values.data_ptr()


@torch.no_grad()
def test_a_full_cache_says_how_much_room_it_needs(attention, x):
    past = cache(capacity=8)
    past.read(x, attention)
    past.advance()
    message = "the cache was made with capacity=8, but this step needs 10: make it with capacity=10"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        past.read(x[:, :3], attention)


@pytest.mark.parametrize("size", [1, 3])
@torch.no_grad()
def test_a_cache_of_another_batch_is_refused(attention, size):
    message = (
        f"the cache was made with batch=2, but this step needs {size}: make it with batch={size}"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        cache(capacity=7).read(torch.randn(size, 4, WIDTH), attention)


@torch.no_grad()
def test_a_cache_of_another_precision_is_refused(attention, x):
    message = (
        "the cache was made with dtype=torch.float32, but this step needs torch.bfloat16: "
        "make it with dtype=torch.bfloat16"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        cache(capacity=7).read(x.bfloat16(), attention.bfloat16())


def test_a_cache_refuses_to_carry_gradients(attention, x):
    message = (
        "a KVCache is written in place and carries no gradient: "
        "run the model under torch.inference_mode() or torch.no_grad()"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        cache(capacity=7).read(x, attention)


def test_a_frozen_past_answers_with_the_other_sequence(x):
    attention = Attention(WIDTH, HEADS, key_heads=KEY_HEADS)
    context = torch.randn(BATCH, 5, WIDTH)
    frozen = attention.freeze(context)
    q, k, v = frozen.read(x, attention)
    assert isinstance(frozen, FrozenKV)
    assert_all_close((k, v), attention.keys_values(context, start=0))
    torch.testing.assert_close(q, attention.queries(x))
    frozen.advance()
    assert frozen.length == 0


def test_a_memory_holds_the_last_hidden_states(attention, x):
    memory = HiddenMemory(capacity=4)
    segments = x.split((2, 1, 3, 1), dim=1)
    seen = x[:, :0]
    for segment in segments:
        assert memory.length == min(4, seen.shape[1])
        memory.read(segment, attention)
        memory.advance()
        seen = torch.cat((seen, segment), dim=1)
        assert torch.equal(memory.states, seen[:, -4:])


def test_a_memory_projects_its_states_before_the_tokens_at_hand(attention, x):
    memory = HiddenMemory(capacity=5)
    memory.read(x[:, :5], attention)
    memory.advance()
    q, k, v = attention.queries_keys_values(x, start=0)
    assert_all_close(memory.read(x[:, 5:], attention), (q[:, :, 5:], k, v))


def test_a_memory_changes_only_when_it_is_advanced(attention, x):
    memory = HiddenMemory(capacity=4)
    memory.read(x[:, :4], attention)
    assert memory.length == 0
    memory.advance()
    first = memory.read(x[:, 4:], attention)
    assert_all_close(memory.read(x[:, 4:], attention), first)
    memory.advance()
    memory.advance()  # nothing is pending any more
    assert torch.equal(memory.states, x[:, -4:])


def test_a_memory_of_nothing_is_no_past(attention, x):
    memory = HiddenMemory(capacity=0)
    for _ in range(2):
        assert_all_close(memory.read(x, attention), NO_CACHE.read(x, attention))
        memory.advance()
        assert memory.length == 0


def test_gradients_stop_at_the_memory(attention, x):
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
def test_a_memory_of_another_batch_is_refused(attention, x, shape, message):
    memory = HiddenMemory(capacity=4)
    memory.read(x, attention)
    memory.advance()
    other = Attention(shape[-1], HEADS)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        memory.read(torch.randn(shape), other)


@torch.no_grad()
def test_a_cache_takes_tokens_back(attention, x):
    past = cache(capacity=7)
    past.read(x[:, :5], attention)
    past.advance()
    past.forget(2)
    assert past.length == 3
    again = past.read(x[:, 3:], attention)
    assert_all_close(again[1:], attention.queries_keys_values(x, start=0)[1:])


@torch.no_grad()
def test_a_past_goes_on_with_some_sequences(attention, x):
    for past in (cache(capacity=7), HiddenMemory(capacity=7), KVMemory(capacity=7)):
        past.read(x[:, :4], attention)
        past.advance()
        past.select(torch.tensor([1, 1, 0]))
        expected = attention.queries_keys_values(x[[1, 1, 0]], start=0)
        assert_all_close(past.read(x[[1, 1, 0], 4:], attention)[1:], expected[1:])


@pytest.mark.parametrize("kind", [HiddenMemory, KVMemory])
def test_a_memory_cannot_take_a_token_back(kind):
    kind(capacity=4).forget(0)
    with pytest.raises(ValueError, match=f"^a {kind.__name__} has dropped what came before"):
        kind(capacity=4).forget(1)


@torch.no_grad()
@pytest.mark.parametrize("capacity", [0, 1, 4, 99])
def test_keys_and_values_are_as_good_as_states_while_weights_rest(attention, capacity):
    """Rotary keys stay turned as they were: only distances matter."""
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


def test_a_memory_of_keys_refuses_gradients_and_other_batches(attention, x):
    with pytest.raises(ValueError, match=r"^a KVMemory carries no gradient: train with a Hidden"):
        KVMemory(4).read(x, attention)
    memory = KVMemory(4)
    with torch.no_grad():
        memory.read(x, attention)
        memory.advance()
        message = "the memory holds 2 sequences, but the input has 1: start with a new memory"
        with pytest.raises(ValueError, match=f"^{message}$"):
            memory.read(x[:1], attention)


# --- going on with some of the sequences ---------------------------------------------------


@torch.no_grad()
def test_selected_and_copied_rows_go_on_as_what_they_were():
    attention = Attention(WIDTH, 4).eval()
    x = torch.randn(3, 5, WIDTH)
    mask = Mask(Causal())
    for make in (
        lambda: KVCache(3, 4, 4, WIDTH // 4),
        lambda: HiddenMemory(9),
        lambda: KVMemory(9),
    ):
        past = make()
        attention(x[:, :3], mask, past)
        past.advance()
        past.copy(torch.tensor([0, 2]), torch.tensor([2, 0]))  # the two change places
        past.select(torch.tensor([2, 2, 1]))  # what is in row 2 now is sequence 0
        if isinstance(past, KVCache):
            past.extend(6)
        rows = torch.tensor([0, 0, 1])
        given = attention(x[rows, 3:], mask, past)
        torch.testing.assert_close(given, attention(x[rows], mask)[:, 3:], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_sequences_that_share_a_source_are_as_with_a_source_each():
    attention = Attention(WIDTH, 4).eval()
    context = torch.randn(2, 7, WIDTH)
    keep = torch.arange(7) < torch.tensor([[7], [4]])
    x = torch.randn(6, 3, WIDTH)  # three for each source
    together = attention(x, Mask(Full(), keep), attention.freeze(context))
    rows = torch.arange(2).repeat_interleave(3)
    each = attention(x, Mask(Full(), keep[rows]), attention.freeze(context[rows]))
    torch.testing.assert_close(together, each, atol=1e-6, rtol=1e-5)
    past = attention.freeze(context)
    past.select(torch.tensor([1]))
    torch.testing.assert_close(
        attention(x[3:], Mask(Full(), keep[1:]), past), each[3:], atol=1e-6, rtol=1e-5
    )
