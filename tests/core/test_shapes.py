"""Shape and dtype errors: every part of core rejects inputs that do not fit, in one sentence."""

import math
import re

import pytest
import torch
from torch import nn

from clearformer.core import basic, heads, kernels
from clearformer.core.attention import Attention
from clearformer.core.basic import require_broadcast, require_ids, require_shape
from clearformer.core.block import Block, FeedForward, GatedFeedForward
from clearformer.core.cache import HiddenMemory
from clearformer.core.embedding import Embedding
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal, Full, Local
from clearformer.core.positions import Learned, RelativeXL, Rotary
from clearformer.core.stack import Stack
from clearformer.extensions import heads as more_heads
from clearformer.extensions.embedding import NeighbourEmbedding, Neighbours
from clearformer.extensions.patterns import Graph
from clearformer.extensions.positions import ALiBi
from clearformer.inference.caches import StaticKVCache
from clearformer.kernels import vocabulary_loss
from clearformer.kernels.blockwise import blockwise
from clearformer.kernels.fast import fast

KERNELS = [kernels.loop, kernels.explicit, kernels.fused, fast, blockwise]
WIDTH, HEADS, KEY_HEADS = 8, 4, 2


def refused(message, call):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        call()


def tensors(batch=2, heads=HEADS, queries=3, keys=5, width=2, key_heads=KEY_HEADS):
    q = torch.randn(batch, heads, queries, width)
    k, v = torch.randn(2, batch, key_heads, keys, width)
    return q, k, v


def test_require_shape_accepts_or_names_expected_shape():
    require_shape("x", torch.zeros(2, 3), ("rows", 3), "no")
    require_shape("x", torch.zeros(()), (), "no")
    message = "x: the shape is (2, 3), but it must be (rows, 4): cut it"
    refused(message, lambda: require_shape("x", torch.zeros(2, 3), ("rows", 4), "cut it"))
    message = "x: the shape is (2,), but it must be (rows, columns): cut it"
    refused(message, lambda: require_shape("x", torch.zeros(2), ("rows", "columns"), "cut it"))


@pytest.mark.parametrize("shape", [(), (5,), (1,), (3, 1), (2, 1, 3, 5), (1, 4, 1, 1)])
def test_require_broadcast_accepts_broadcastable_shape(shape):
    require_broadcast("bias", torch.zeros(shape), (2, 4, 3, 5), "no")


@pytest.mark.parametrize("shape", [(3,), (5, 1), (2, 4, 3, 4), (1, 2, 4, 3, 5), (0,)])
def test_require_broadcast_rejects_other_shapes(shape):
    message = f"bias: the shape is {shape}, but it must broadcast to (2, 4, 3, 5): change it"
    refused(
        message, lambda: require_broadcast("bias", torch.zeros(shape), (2, 4, 3, 5), "change it")
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.uint8, torch.int16])
def test_require_ids_rejects_non_integer_dtype(dtype):
    require_ids("ids", torch.zeros(1, dtype=torch.int32))
    message = f"ids: the dtype is {dtype}, but it must be torch.int64: use ids.long()"
    refused(message, lambda: require_ids("ids", torch.zeros(1, dtype=dtype)))


# --- kernels ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("pattern", [Full(), Causal(), Causal() & Local(2)])
def test_kernels_reject_queries_without_batch_axis(kernel, pattern):
    q, k, v = (x[0] for x in tensors(queries=2))
    message = (
        "q: the shape is (4, 2, 2), but it must be (batch, heads, queries, width): pass q[None]"
    )
    refused(message, lambda: kernel(q, k, v, Mask(pattern), None, 0.0))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": (1, 2, 5, 2)}, "k: the shape is (1, 2, 5, 2), but it must be (2, key heads, keys,"),
        ({"k": (2, 2, 5, 1)}, "k: the shape is (2, 2, 5, 1), but it must be (2, key heads, keys,"),
        ({"v": (2, 2, 1, 2)}, "v: the shape is (2, 2, 1, 2), but it must be (2, 2, 5, 2)"),
        ({"v": (2, 1, 5, 2)}, "v: the shape is (2, 1, 5, 2), but it must be (2, 2, 5, 2)"),
        (
            {"k": (2, 3, 5, 2), "v": (2, 3, 5, 2)},
            "heads is 4 and key_heads is 3, but the key heads must divide the heads",
        ),
        ({"k": (2, 2, 0, 2), "v": (2, 2, 0, 2)}, "k has no keys, but there must be at least one"),
    ],
)  # fmt: skip
def test_kernels_reject_mismatched_keys_and_values(kernel, changes, message):
    given = dict(zip("qkv", tensors(), strict=True))
    given |= {name: torch.randn(shape) for name, shape in changes.items()}
    refused(message, lambda: kernel(*given.values(), Mask(), None, 0.0))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shape", [(2, 3, 5), (3, 4), (2, 4, 5, 5), (1, 1, 4, 3, 5)])
def test_kernels_reject_bias_of_wrong_shape(kernel, shape):
    message = f"bias: the shape is {shape}, but it must broadcast to (2, 4, 3, 5)"
    refused(message, lambda: kernel(*tensors(), Mask(Causal()), torch.zeros(shape), 0.0))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("keys", [1, 2])
def test_kernels_reject_more_queries_than_keys_unless_full(kernel, keys):
    message = (
        f"there are 3 queries and {keys} keys, but under Causal() the queries are the last of the "
        f"keys: use Full() for keys of another sequence"
    )
    q, k, v = tensors(keys=keys)
    refused(message, lambda: kernel(q, k, v, Mask(Causal()), None, 0.0))
    assert kernel(q, k, v, Mask(), None, 0.0).shape == q.shape


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shape", [(1, 5), (2, 1), (5, 2), (2, 3)])
def test_kernels_reject_attention_mask_of_wrong_shape(kernel, shape):
    mask = Mask(Causal(), torch.ones(shape, dtype=torch.bool))
    message = f"attention_mask has shape {shape}, but there are 2 sequences of 5 keys"
    refused(message, lambda: kernel(*tensors(), mask, None, 0.0))


def test_mask_table_rejects_queries_without_batch_axis():
    q, k, _ = tensors()
    message = "q: the shape is (4, 3, 2), but it must be (batch, heads, queries, width)"
    refused(message, lambda: Mask(Causal()).table(q[0], k[0]))


def test_pattern_subclass_uses_overridden_rule():
    class Strictly(Causal):
        def allows(self, query, key):
            return key < query

    q, k, v = tensors(queries=5)
    given = [kernel(q, k, v, Mask(Strictly()), None, 0.0) for kernel in KERNELS]
    for each in given:
        torch.testing.assert_close(each, given[0])
        assert not each[:, :, 0].any()  # sees nothing


# --- attention and blocks --------------------------------------------------------------------


def attention(**values):
    return Attention(WIDTH, HEADS, key_heads=KEY_HEADS, **values)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3, WIDTH), "x: the shape is (3, 8), but it must be (batch, tokens, 8): pass x[None]"),
        ((WIDTH,), "x: the shape is (8,), but it must be (batch, tokens, 8): pass x[None]"),
        ((1, 2, 3, WIDTH), "x: the shape is (1, 2, 3, 8), but it must be (batch, tokens, 8)"),
        ((2, 3, 6), "x: the shape is (2, 3, 6), but it must be (batch, tokens, 8)"),
        ((2, 0, WIDTH), "x: the shape is (2, 0, 8), but a sequence must have at least one token"),
    ],
)
def test_attention_block_and_stack_reject_wrong_input_shape(kernel, shape, message):
    layer = attention(kernel=kernel)
    refused(message, lambda: layer(torch.randn(shape), Mask()))
    block = Block(layer, FeedForward(WIDTH, 12), (nn.Identity(), nn.Identity()))
    refused(message, lambda: block(torch.randn(shape), Mask()))
    refused(message, lambda: Stack([block])(torch.randn(shape)))


def test_accepts_empty_batch():
    for kernel in KERNELS:
        y = attention(kernel=kernel, position=Rotary())(torch.randn(0, 3, WIDTH), Mask(Causal()))
        assert y.shape == (0, 3, WIDTH)


def test_cross_attention_rejects_wrong_context_shape():
    layer = attention()
    message = "context: the shape is (5, 8), but it must be (batch, tokens, 8): pass context[None]"
    refused(message, lambda: layer.freeze(torch.randn(5, WIDTH)))
    source = layer.freeze(torch.randn(2, 5, WIDTH))
    message = "the source holds 2 sequences of width 2, but the input has 3 of width 2"
    refused(message, lambda: layer(torch.randn(3, 4, WIDTH), Mask(), source))


@pytest.mark.parametrize("position", [Rotary(), ALiBi(), RelativeXL()])
def test_cross_attention_rejects_relative_positions(position):
    """Keys would be rotated and queries not, or distances counted between the two."""
    message = f"this attention has {type(position).__name__} positions, but places of two sequences"
    refused(message, lambda: attention(position=position).freeze(torch.randn(1, 5, WIDTH)))


def test_attention_rejects_zero_heads():
    message = f"width is {WIDTH} and heads is 0, but the heads must divide the width: use 1 heads"
    refused(message, lambda: Attention(WIDTH, heads=0))
    message = "heads is 2 and key_heads is 0, but the key heads must divide the heads: use 1 key"
    refused(message, lambda: Attention(WIDTH, heads=2, key_heads=0))


@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 0), (5,), (1, 2, 3)])
def test_feed_forward_accepts_any_leading_axes(kind, shape):
    layer, x = kind(WIDTH, 12), torch.randn(*shape, WIDTH)
    expected = [layer(row[None])[0] for row in x.reshape(-1, WIDTH)]
    rows = torch.stack(expected) if expected else x.reshape(-1, WIDTH)
    torch.testing.assert_close(layer(x), rows.view(x.shape))


# --- positions -------------------------------------------------------------------------------


def test_rotary_rejects_wrong_shapes():
    x = torch.randn(3, 2, 5, 4)
    for positions, wanted in [
        (torch.arange(4), "(5,)"),
        (torch.arange(1), "(5,)"),
        (torch.zeros(2, 5), "(3, 5)"),
        (torch.zeros(3, 1), "(3, 5)"),
        (torch.zeros(3, 1, 5), "(3, 5)"),
    ]:
        message = f"positions: the shape is {tuple(positions.shape)}, but it must be {wanted}"
        refused(message, lambda positions=positions: Rotary().rotate(x, positions))
    message = "x: the shape is (2, 5, 4), but it must be (batch, heads, tokens, width)"
    refused(message, lambda: Rotary().rotate(x[0], torch.arange(5)))


@pytest.mark.parametrize("shape", [(2, 1, 5, 2), (2, 4, 5, 4), (4, 5, 2)])
def test_relative_xl_rejects_wrong_number_of_heads(shape):
    message = f"q: the shape is {shape}, but it must be (batch, 4, queries, 2)"
    q = torch.randn(shape)
    learned = RelativeXL().attention_parameters(WIDTH, HEADS, WIDTH // HEADS)
    refused(message, lambda: RelativeXL().score(q, q, learned))


# --- embeddings ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": torch.zeros(2, 3)}, "tokens: the dtype is torch.float32"),
        ({"tokens": torch.zeros(3, dtype=torch.long)}, "tokens: the shape is (3,), but"),
        ({"tokens": torch.zeros(2, 0, dtype=torch.long)}, "tokens: the shape is (2, 0), but"),
        ({"tokens": torch.full((2, 3), 9)}, "token id 9 is outside the vocabulary of 5 (0 to 4)"),
        ({"tokens": torch.full((2, 3), -1)}, "token id -1 is outside the vocabulary of 5 (0 to 4)"),
        (
            {"attention_mask": torch.ones(2, 3)},
            "attention_mask has dtype torch.float32, but it must be torch.bool",
        ),
        (
            {"attention_mask": torch.ones(3, dtype=torch.bool)},
            "attention_mask has shape (3,), but there are 2",
        ),
        (
            {"attention_mask": torch.ones(1, 3, dtype=torch.bool)},
            "attention_mask has shape (1, 3), but there are 2",
        ),
        (
            {"attention_mask": torch.ones(2, 3, dtype=torch.bool), "start": 2},
            "attention_mask has shape (2, 3), but there are 2 sequences of 5 keys: it must be "
            "(2, 5)",
        ),
        ({"segments": torch.zeros(3, dtype=torch.long)}, "segments: the shape is (3,), but"),
        ({"segments": torch.zeros(2, 3)}, "segments: the dtype is torch.float32"),
        ({"segments": torch.full((2, 3), 2)}, "segment id 2 is outside the table of 2 (0 to 1)"),
    ],
)  # fmt: skip
def test_embedding_rejects_invalid_inputs(changes, message):
    embedding = Embedding(nn.Embedding(5, 4), 9, position=Learned(), segments=2)
    given = {"tokens": torch.zeros(2, 3, dtype=torch.long)} | changes
    refused(message, lambda: embedding(**given))


def test_neighbour_embedding_rejects_partial_sequence():
    embedding = NeighbourEmbedding(nn.Embedding(5, 4), 9, neighbours=7)
    tokens = torch.tensor([[1, 2, 3]])
    message = "these tokens come after 2 others, but neighbours need the token before each"
    refused(message, lambda: embedding(tokens, start=2))
    message = "tokens: the shape is (3,), but it must be (batch, tokens): pass tokens[None]"
    refused(message, lambda: embedding.neighbours(tokens[0]))


def test_neighbour_hash_is_same_for_int32_and_int64():
    tokens = torch.tensor([[4_000, 49_999, 50_256]])
    neighbours = Neighbours(buckets=1_000, width=4)
    assert torch.equal(neighbours(tokens.int()), neighbours(tokens))


# --- heads and losses ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pool", [heads.mean_pool, more_heads.max_pool, more_heads.mean_max_pool, heads.first_pool]
)
def test_pools_reject_invalid_inputs(pool):
    hidden = torch.randn(2, 3, 4)
    attention_mask = torch.ones(2, 3, dtype=torch.bool)
    refused(
        "hidden: the shape is (3, 4), but it must be (batch, tokens, width): pass hidden[None]",
        lambda: pool(hidden[0], None),
    )
    refused(
        "hidden: the shape is (2, 0, 4), but a sequence must have",
        lambda: pool(hidden[:, :0], None),
    )
    refused(
        "attention_mask has dtype torch.int64, but it must be torch.bool",
        lambda: pool(hidden, attention_mask.long()),
    )
    for wrong in (attention_mask[:1], attention_mask[:, :1], attention_mask.T):
        message = (
            f"attention_mask has shape {tuple(wrong.shape)}, but there are 2 sequences of 3 keys"
        )
        refused(message, lambda wrong=wrong: pool(hidden, wrong))


HEADS_WITH_TARGETS = {
    "next": heads.NextToken(nn.Linear(4, 5)),
    "masked": heads.MaskedToken(4, torch.relu, nn.Identity(), nn.Linear(4, 5)),
    "classifier": heads.Classifier(heads.mean_pool, 4, 5),
}


@pytest.mark.parametrize("head", HEADS_WITH_TARGETS)
def test_heads_reject_targets_of_wrong_shape(head):
    module, hidden = HEADS_WITH_TARGETS[head], torch.randn(2, 3, 4)
    shape = (2,) if head == "classifier" else (2, 3)
    right = torch.zeros(shape, dtype=torch.long)
    module.loss(hidden, right)
    wanted = "(2,)" if head == "classifier" else "(2, 3)"
    for wrong in (right[None], right[:1], torch.zeros(3, 2, dtype=torch.long)):
        message = f"targets: the shape is {tuple(wrong.shape)}, but it must be {wanted}"
        refused(message, lambda wrong=wrong: module.loss(hidden, wrong))
    for dtype in (torch.float32, torch.int32):
        message = f"targets: the dtype is {dtype}, but it must be torch.int64: use targets.long()"
        refused(message, lambda dtype=dtype: module.loss(hidden, right.to(dtype)))
    for wrong in (5, -1):
        message = (
            f"target {wrong} is outside the 5 classes (0 to 4), and is not -100, which stands for "
            f"no target"
        )
        refused(message, lambda wrong=wrong: module.loss(hidden, right.clone().fill_(wrong)))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("wrong", [-1, -5, 7])
@pytest.mark.parametrize("learning", [True, False])
def test_chunked_loss_rejects_targets_outside_vocabulary(monkeypatch, smoothing, wrong, learning):
    """A negative target used to be treated as class 0."""
    monkeypatch.setattr(vocabulary_loss, "CHUNK", 14)  # two rows
    project, rows = nn.Linear(4, 7), torch.randn(5, 4)
    targets = torch.tensor([0, 6, heads.IGNORE, wrong, 2])
    message = f"target {wrong} is outside the 7 classes (0 to 6)"
    with torch.set_grad_enabled(learning):
        refused(message, lambda: vocabulary_loss.in_chunks(project, rows, targets, smoothing, None))


def test_chunked_loss_rejects_second_backward(monkeypatch):
    monkeypatch.setattr(vocabulary_loss, "CHUNK", 14)
    rows = torch.randn(5, 4, requires_grad=True)
    targets = torch.zeros(5, dtype=torch.long)
    loss, _ = vocabulary_loss.in_chunks(nn.Linear(4, 7), rows, targets, 0.0, None)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match=r"^the chunked loss frees its gradient"):
        loss.backward()


# --- caches ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ((2, 1, 9, 2), "the cache was made with key_heads=1, but this step needs 2"),
        ((2, 4, 9, 2), "the cache was made with key_heads=4, but this step needs 2"),
        ((2, 2, 9, 1), "the cache was made with head_width=1, but this step needs 2"),
        ((2, 2, 9, 4), "the cache was made with head_width=4, but this step needs 2"),
        ((1, 2, 9, 2), "the cache was made with batch=1, but this step needs 2"),
    ],
)
@torch.no_grad()
def test_static_kv_cache_rejects_wrong_heads_or_width(size, message):
    refused(message, lambda: attention()(torch.randn(2, 3, WIDTH), Mask(), StaticKVCache(*size)))


@torch.no_grad()
def test_static_kv_cache_forget_rejects_invalid_count():
    cache = StaticKVCache(2, KEY_HEADS, 9, 2)
    attention()(torch.randn(2, 3, WIDTH), Mask(), cache)
    cache.advance()
    for count in (4, -1):
        message = f"the cache holds 3 tokens: it cannot remove {count}"
        refused(message, lambda count=count: cache.forget(count))
    cache.forget(3)
    assert cache.length == 0


def test_hidden_memory_rejects_other_batch_size():
    memory, layer = HiddenMemory(4), attention()
    layer(torch.randn(2, 3, WIDTH), Mask(), memory)
    memory.advance()
    refused(
        "the memory holds 2 sequences of width 8, but the input has 1 of width 8",
        lambda: layer(torch.randn(1, 3, WIDTH), Mask(), memory),
    )


# --- first equations and patterns ------------------------------------------------------------


def test_basic_functions_reject_wrong_shapes():
    message = "x: the shape is (2, 3, 4), but it must be (tokens, width): pass one sequence"
    refused(message, lambda: basic.attend_loop(torch.randn(2, 3, 4)))
    message = "width is 4 and heads is 3, but the heads must divide the width"
    refused(message, lambda: basic.multi_head_loop(torch.randn(2, 3, 4), *torch.randn(4, 4, 4), 3))


def test_patterns_reject_invalid_arguments():
    refused("Local: window is 2.5, but it must be a whole number", lambda: Local(2.5))
    message = "Graph: edge (0, 1, 2) has 3 nodes, but an edge is a pair: write (query, key)"
    refused(message, lambda: Graph(((0, 1, 2), (1, 2, 0)), 3))


# --- arguments -------------------------------------------------------------------------------


def test_inputs_are_not_modified_in_place():
    """No function modifies its tensor arguments."""
    q, k, v = tensors(queries=5)
    bias = torch.randn(2, HEADS, 5, 5)
    bias[0, :, 2] = -math.inf
    attention_mask = torch.tensor([[True] * 5, [False] * 2 + [True] * 3])
    hidden, x = torch.randn(2, 5, WIDTH), torch.randn(2, 5, WIDTH)
    targets = torch.tensor([[0, 1, -100, 2, 3]] * 2)
    given = [q, k, v, bias, attention_mask, hidden, x, targets]
    before = [each.clone() for each in given]
    layer = attention(position=Rotary())
    for pattern in (Full(), Causal(), Causal() & Local(2)):
        for kernel in KERNELS:
            for leaf in (bias, bias.clone().requires_grad_()):
                kernel(q.requires_grad_(), k, v, Mask(pattern, attention_mask), leaf, 0.2)
    Block(layer, FeedForward(WIDTH, 12), (nn.LayerNorm(8), nn.LayerNorm(8)))(
        x, Mask(Causal(), attention_mask)
    )
    GatedFeedForward(WIDTH, 12, torch.relu)(x)
    for pool in (heads.mean_pool, more_heads.max_pool, heads.first_pool):
        pool(hidden, attention_mask)
    heads.NextToken(nn.Linear(WIDTH, 5), cap=3.0).loss(hidden, targets)
    heads.MaskedToken(WIDTH, torch.relu, nn.Identity(), nn.Linear(WIDTH, 5)).loss(hidden, targets)
    for one, other in zip(given, before, strict=True):
        assert torch.equal(one, other)
