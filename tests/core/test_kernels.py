"""Attention kernels compute the same function: values, gradients, and training mode.

`fast`, with which built models train, is held to the same promises.
"""

import math
import re

import pytest
import torch

from clearformer.core import kernels
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal, Fixed, Full, Local, Strided
from clearformer.extensions.patterns import Each, Graph, PerHead
from clearformer.kernels.fast import fast

KERNELS = {
    "loop": kernels.loop,
    "explicit": kernels.explicit,
    "fused": kernels.fused,
    "fast": fast,
}
BATCH, HEADS, KEYS, WIDTH = 2, 4, 5, 4

PATTERNS = {
    "full": Full(),
    "causal": Causal(),
    "local": Causal() & Local(2),
    "strided": Local(2) | Strided(3),
    "fixed": Causal() & Fixed(3, 1),
    "graph with a blind node": Graph(((0, 1), (1, 3), (2, 2), (4, 0), (4, 4)), 5),
}
PADDINGS = {
    "none": None,
    "right": [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]],
    "left": [[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]],
    "whole row": [[1, 1, 1, 0, 0], [0, 0, 0, 0, 0]],
}
BIASES = {"none": None, "for all": (HEADS, -1, KEYS), "for each": (BATCH, HEADS, -1, KEYS)}
SHAPES = {"square": (KEYS, HEADS), "suffix": (2, HEADS), "grouped": (KEYS, 2), "one query": (1, 1)}


def attention_mask_of(padding):
    rows = PADDINGS[padding]
    return None if rows is None else torch.tensor(rows, dtype=torch.bool)


def inputs(shape, bias, dtype=torch.float64):
    queries, key_heads = SHAPES[shape]
    q = torch.randn(BATCH, HEADS, queries, WIDTH, dtype=dtype)
    k, v = torch.randn(2, BATCH, key_heads, KEYS, WIDTH, dtype=dtype)
    size = BIASES[bias]
    if size is None:
        return [q, k, v]
    return [q, k, v, torch.randn([queries if n == -1 else n for n in size], dtype=dtype)]


def output_and_gradients(kernel, tensors, mask, dropout=0.0):
    """The output of a kernel for a seed, and the gradients of a fixed linear combination of it."""
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    q, k, v, bias = [*leaves, None][:4]
    torch.manual_seed(1)
    y = kernel(q, k, v, mask, bias, dropout)
    mixture = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    # A tensor that no query uses is not part of the graph; adding zero includes it.
    nothing = 0 * sum(leaf.sum() for leaf in leaves)
    return [y.detach(), *torch.autograd.grad((y * mixture).sum() + nothing, leaves)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_kernels_agree_in_value_and_gradient(pattern, padding, bias, shape):
    mask = Mask(PATTERNS[pattern], attention_mask_of(padding))
    tensors = inputs(shape, bias)
    expected = output_and_gradients(kernels.loop, tensors, mask)
    for kernel in (kernels.explicit, kernels.fused, fast):
        torch.testing.assert_close(output_and_gradients(kernel, tensors, mask), expected)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("pattern", ["full", "causal", "graph with a blind node"])
def test_kernels_apply_same_dropout_for_same_seed(pattern, padding, bias, shape):
    mask = Mask(PATTERNS[pattern], attention_mask_of(padding))
    tensors = inputs(shape, bias)
    expected = output_and_gradients(kernels.loop, tensors, mask, dropout=0.4)
    for kernel in (kernels.explicit, kernels.fused, fast):
        given = output_and_gradients(kernel, tensors, mask, dropout=0.4)
        torch.testing.assert_close(given, expected)
    undropped = output_and_gradients(kernels.fused, tensors, mask)
    assert not torch.allclose(undropped[0], expected[0]) or not expected[0].any()


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_matches_formula(kernel):
    q, k, v, bias = inputs("square", "for each")
    seen = Causal().table(KEYS, KEYS)
    scores = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(WIDTH) + bias
    exponentials = scores.exp() * seen
    weights = exponentials / exponentials.sum(dim=-1, keepdim=True)
    expected = torch.einsum("bhij,bhjd->bhid", weights, v)
    given = KERNELS[kernel](q, k, v, Mask(Causal()), bias, 0.0)
    torch.testing.assert_close(given, expected)


@pytest.mark.parametrize("kernel", KERNELS)
def test_single_query_is_aligned_to_last_key(kernel):
    """With torch's `is_causal` it would attend to the first key only."""
    q, k, v = inputs("square", "none")
    whole = KERNELS[kernel](q, k, v, Mask(Causal()), None, 0.0)
    last = KERNELS[kernel](q[:, :, -1:], k, v, Mask(Causal()), None, 0.0)
    torch.testing.assert_close(last, whole[:, :, -1:])
    wrongly_aligned = torch.nn.functional.scaled_dot_product_attention(
        q[:, :, -1:], k, v, is_causal=True
    )
    torch.testing.assert_close(wrongly_aligned, v[:, :, :1])
    assert not torch.allclose(last, wrongly_aligned)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fully_masked_query_yields_zero(kernel, shape, bias, dropout, dtype):
    mask = Mask(PATTERNS["graph with a blind node"], attention_mask_of("whole row"))
    tensors = inputs(shape, bias, dtype)
    y, *gradients = output_and_gradients(KERNELS[kernel], tensors, mask, dropout)
    blind = ~mask.table(*tensors[:2]).expand(BATCH, HEADS, -1, KEYS).any(dim=-1)
    assert blind[1].all()
    assert torch.equal(y[blind], torch.zeros_like(y[blind]))
    for gradient in gradients:
        assert gradient.isfinite().all()
    assert not gradients[0][blind].any()
    assert not gradients[1][1].any()  # keys that no query sees
    assert not gradients[2][1].any()  # and values


@pytest.mark.parametrize("kernel", KERNELS)
def test_anomaly_detection_finds_no_nan(kernel):
    """torch's anomaly detection must not report the kernels."""
    mask = Mask(Causal(), attention_mask_of("whole row"))
    with torch.autograd.set_detect_anomaly(True):
        output_and_gradients(KERNELS[kernel], inputs("square", "for each"), mask)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("padded", [False, True])
def test_dropout_applies_to_attention_weights(kernel, padded):
    """With the identity for values the output *is* the table of weights."""
    rate, keys = 0.4, 24
    q, k = torch.randn(2, 1, 1, keys, keys)
    identity = torch.eye(keys)[None, None]
    mask = Mask(Causal(), torch.arange(keys)[None] >= 4 if padded else None)
    kept = KERNELS[kernel](q, k, identity, mask, None, 0.0)
    dropped = KERNELS[kernel](q, k, identity, mask, None, rate)
    zero = dropped == 0
    torch.testing.assert_close(dropped[~zero], kept[~zero] / (1 - rate))
    torch.testing.assert_close(zero[kept > 0].float().mean().item(), rate, atol=0.1, rtol=0)
    assert zero[kept == 0].all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_half_precision_is_close_to_float32(kernel):
    tensors = inputs("grouped", "for each", torch.float32)
    mask = Mask(Causal(), attention_mask_of("left"))
    exact = KERNELS[kernel](*tensors[:3], mask, tensors[3], 0.0)
    halves = [tensor.bfloat16() for tensor in tensors]
    rounded = KERNELS[kernel](*halves[:3], mask, halves[3], 0.0)
    assert rounded.dtype == torch.bfloat16
    torch.testing.assert_close(rounded.float(), exact, atol=0.05, rtol=0.05)


def test_attention_weights_sum_to_one_or_zero():
    q, k, _ = inputs("square", "none")
    mask = Mask(PATTERNS["graph with a blind node"], attention_mask_of("whole row"))
    sums = kernels.weights(q, k, mask, None).sum(dim=-1)
    sees = mask.table(q, k).any(dim=-1).expand_as(sums)
    torch.testing.assert_close(sums, sees.to(sums.dtype))


@pytest.mark.parametrize(
    ("attention_mask", "message"),
    [
        (
            torch.ones(BATCH, KEYS),
            "attention_mask has dtype torch.float32, but it must be torch.bool "
            "(True = a real token): use attention_mask=(tokens != padding)",
        ),
        (
            torch.ones(KEYS, dtype=torch.bool),
            "attention_mask has shape (5,), but there are 2 sequences of 5 keys: "
            "it must be (2, 5), cached tokens included",
        ),
        (
            torch.ones(BATCH, KEYS - 1, dtype=torch.bool),
            "attention_mask has shape (2, 4), but there are 2 sequences of 5 keys: "
            "it must be (2, 5), cached tokens included",
        ),
        (
            torch.ones(BATCH + 1, KEYS, dtype=torch.bool),
            "attention_mask has shape (3, 5), but there are 2 sequences of 5 keys: "
            "it must be (2, 5), cached tokens included",
        ),
    ],
)
@pytest.mark.parametrize("kernel", KERNELS)
def test_rejects_attention_mask_of_wrong_shape_or_dtype(kernel, attention_mask, message):
    q, k, v = inputs("square", "none")
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        KERNELS[kernel](q, k, v, Mask(Causal(), attention_mask), None, 0.0)


def test_per_head_patterns_in_every_kernel():
    q, k, v = torch.randn(3, 2, 4, 9, 8)
    several = (Causal() & Local(2), Causal() & Strided(3))
    mask = Mask(PerHead(several))
    for kernel in KERNELS.values():
        whole = kernel(q, k, v, mask, None, 0.0)
        for head in range(4):
            own = [x[:, head : head + 1] for x in (q, k, v)]
            alone = kernels.explicit(*own, Mask(several[head % 2]), None, 0.0)
            torch.testing.assert_close(whole[:, head : head + 1], alone)


@pytest.mark.parametrize("padded", [False, True])
def test_per_sequence_patterns_in_every_kernel(padded):
    q, k, v = torch.randn(3, 2, 4, 9, 8)
    attention_mask = torch.arange(9) >= torch.tensor([[0], [3]]) if padded else None
    several = (Graph(((0, 1), (1, 0), (4, 2)), 5), Causal())
    for kernel in KERNELS.values():
        whole = kernel(q, k, v, Mask(Each(several), attention_mask), None, 0.0)
        for row in range(2):
            own = [x[row : row + 1] for x in (q, k, v)]
            mask = Mask(
                several[row], None if attention_mask is None else attention_mask[row : row + 1]
            )
            torch.testing.assert_close(
                whole[row : row + 1], kernels.explicit(*own, mask, None, 0.0)
            )
