"""Blockwise kernel for sparse patterns: equal to the masked dense kernel, without a T x T table."""

import pytest
import torch

from clearformer.core import kernels
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal, Fixed, Full, Local, Strided
from clearformer.extensions.patterns import Each, Graph, PerHead, Region, Row, Shifted
from clearformer.kernels.blockwise import blockwise
from clearformer.kernels.guides import count_pairs
from clearformer.kernels.tiles import tiles

BATCH, HEADS, WIDTH = 2, 4, 8


def ring(nodes):
    """Every node sees itself and the next; the last one sees nothing."""
    edges = [(i, (i + 1) % nodes) for i in range(nodes - 1)] + [(i, i) for i in range(nodes - 1)]
    return Graph(tuple(edges), nodes)


PATTERNS = {
    "strided, merged": Causal() & (Local(5) | Strided(5)),
    "strided alone": Causal() & Strided(7),
    "local alone": Local(4),
    "fixed": Causal() & Fixed(6, 2),
    "fixed, both ways": Fixed(8, 1),
    "row and column": Row(6) | Strided(6),
    "local and global": Local(3) | Region((0, 2), (0, None)) | Region((0, None), (0, 2)),
    "graph": ring(31),
    "graph and itself": Causal() & (ring(40) | Local(1)),
    "a stride longer than the sequence": Causal() & Strided(500),
    "without": Local(9) - Local(4),
    "picture after a caption": Causal() & Shifted(Row(4) | Strided(4), 5),
    "heads": Causal() & PerHead((Local(4), Strided(5))),
    "heads, one dense": PerHead((Causal(), Causal() & Strided(5))),
    "dense": Causal(),
}


def attention_mask_of(padding, keys):
    place = torch.arange(keys)
    rows = {
        "none": None,
        "right": (place >= 0, place < keys - 5),
        "left": (place >= 3, place >= 9),
        "holes": (place % 4 > 0, place % 7 > 1),
        "whole row": (place < 0, place >= 0),
    }[padding]
    return None if rows is None else torch.stack(rows)


def inputs(queries, keys, key_heads=HEADS, dtype=torch.float64):
    q = torch.randn(BATCH, HEADS, queries, WIDTH, dtype=dtype)
    k, v = torch.randn(2, BATCH, key_heads, keys, WIDTH, dtype=dtype)
    return [q, k, v]


def output_and_gradients(kernel, tensors, mask, dropout=0.0):
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    y = kernel(*leaves[:3], mask, leaves[3] if len(leaves) == 4 else None, dropout)
    mixture = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    return [y.detach(), *torch.autograd.grad((y * mixture).sum(), leaves)]


def assert_same(tensors, mask, **tolerance):
    expected = output_and_gradients(kernels.explicit, tensors, mask)
    given = output_and_gradients(blockwise, tensors, mask)
    torch.testing.assert_close(given, expected, **tolerance)


@pytest.mark.parametrize("padding", ["none", "right", "left", "holes", "whole row"])
@pytest.mark.parametrize(("queries", "keys"), [(37, 37), (1, 37), (12, 41), (64, 64)])
@pytest.mark.parametrize("name", PATTERNS)
def test_matches_masked_dense_kernel(name, queries, keys, padding):
    mask = Mask(PATTERNS[name], attention_mask_of(padding, keys))
    assert_same(inputs(queries, keys), mask)


@pytest.mark.parametrize("length", [1, 2, 63, 65, 130, 201])
@pytest.mark.parametrize("name", ["strided, merged", "fixed", "graph", "heads", "row and column"])
def test_matches_dense_kernel_at_any_length_in_float32(name, length):
    tensors = inputs(length, length, dtype=torch.float32)
    assert_same(tensors, Mask(PATTERNS[name]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("shape", [(HEADS, -1, 37), (BATCH, HEADS, -1, 37), (1, 1, -1, 37)])
@pytest.mark.parametrize("padding", ["none", "left"])
@pytest.mark.parametrize("name", ["strided, merged", "fixed", "heads", "graph"])
@pytest.mark.parametrize("queries", [37, 9])
def test_bias_and_its_gradient_match_dense_kernel(name, padding, shape, queries):
    bias = torch.randn([queries if n == -1 else n for n in shape], dtype=torch.float64)
    assert_same([*inputs(queries, 37), bias], Mask(PATTERNS[name], attention_mask_of(padding, 37)))


def test_grouped_queries_match_dense_kernel():
    assert_same(inputs(37, 37, key_heads=2), Mask(PATTERNS["fixed"]))


def test_per_sequence_patterns():
    mask = Mask(Each((Graph(((0, 1), (5, 3)), 37), Causal() & Strided(5))))
    assert_same(inputs(37, 37), mask)
    tensors = inputs(37, 37)
    whole = blockwise(*tensors, mask, None, 0.0)
    for row, pattern in enumerate(mask.pattern.patterns):
        alone = blockwise(*(t[row : row + 1] for t in tensors), Mask(pattern), None, 0.0)
        torch.testing.assert_close(whole[row : row + 1], alone)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fully_masked_query_yields_zero(dtype):
    tensors = inputs(31, 31, dtype=dtype)
    y, *gradients = output_and_gradients(blockwise, tensors, Mask(ring(31)))
    assert not y[:, :, 30].any()
    assert y[:, :, :30].any(dim=-1).all()
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert not gradients[0][:, :, 30].any()


def test_cost_scales_with_number_of_tiles():
    """Four times the length with twice the stride: eight times the cells, and not sixteen."""

    def cells(length, stride, make):
        found = tiles(make(stride), 0, length, length, torch.device("cpu"))
        return sum(each.seen.numel() for each in found)

    for make in (lambda s: Causal() & (Local(s) | Strided(s)), lambda s: Causal() & Fixed(s, 1)):
        small, large = cells(1024, 32, make), cells(4096, 64, make)
        assert large < 10 * small
        assert large < 3 * count_pairs(make(64), 4096)


def test_never_allocates_quadratic_table():
    """The largest tensor of a pass over 8,192 positions is far below 8,192 x 8,192."""
    length, largest = 8192, 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            found = function(*args, **(kwargs or {}))
            if isinstance(found, torch.Tensor):
                largest = max(largest, found.numel())
            return found

    q, k, v = torch.randn(3, 1, 1, length, 4)
    mask = Mask(Causal() & (Local(64) | Strided(64)))
    tiles.cache_clear()
    with Watch():
        blockwise(q.requires_grad_(), k, v, mask, None, 0.0).sum().backward()
    assert largest < length**2 / 20


def test_dense_pattern_uses_fused_kernel():
    tensors = inputs(20, 20)
    for pattern in (Full(), Causal(), Local(40)):
        given = blockwise(*tensors, Mask(pattern), None, 0.0)
        assert torch.equal(given, kernels.fused(*tensors, Mask(pattern), None, 0.0))


def test_rejects_attention_mask_of_wrong_shape():
    message = (
        r"^attention_mask has shape \(2, 5\), but there are 2 sequences of 20 keys: it must be"
    )
    with pytest.raises(ValueError, match=message):
        blockwise(*inputs(20, 20), Mask(Local(2), torch.ones(2, 5, dtype=torch.bool)), None, 0)


def test_sparse_model_cached_equals_uncached(small, scrambled):
    from clearformer.builder import build, caches
    from clearformer.families import preset

    assert preset("sparse").kernel == "blockwise"
    config = small("sparse", length=30)
    model = scrambled(build(config)).eval()
    tokens = torch.randint(config.vocabulary, (2, 30))
    with torch.inference_mode():
        whole = model(tokens)
        memory = caches(config)
        steps = []
        for some in tokens.split((7, 1, 1, 13, 8), dim=1):
            steps.append(model(some, caches=memory))
            for cache in memory:
                cache.advance()
    torch.testing.assert_close(torch.cat(steps, dim=1), whole)
