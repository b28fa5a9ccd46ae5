"""Basic self-attention: loops, matrix form and the attention module compute the same function."""

import math
from functools import partial

import pytest
import torch
from torch import nn

from clearformer.core import basic, kernels
from clearformer.core.attention import Attention
from clearformer.core.masks import Mask

HEADS, WIDTH, LENGTH = 2, 8, 6


@pytest.fixture
def matrices():
    """To queries, keys and values, and to unify the heads: E x E each."""
    return [torch.randn(WIDTH, WIDTH, dtype=torch.float64) / 2 for _ in range(4)]


def test_loop_and_matrix_form_match_equations():
    x = torch.randn(LENGTH, WIDTH, dtype=torch.float64)
    raw = torch.einsum("ie,je->ij", x, x)
    exponentials = raw.exp()
    by_definition = torch.einsum(
        "ij,je->ie", exponentials / exponentials.sum(dim=1, keepdim=True), x
    )
    torch.testing.assert_close(basic.attend_loop(x), by_definition)
    torch.testing.assert_close(basic.attend(x), by_definition)


def test_matrix_form_handles_batch_sequences_independently():
    x = torch.randn(3, LENGTH, WIDTH)
    alone = torch.stack([basic.attend_loop(sequence) for sequence in x])
    torch.testing.assert_close(basic.attend(x), alone)


def test_large_scores_do_not_overflow():
    x = 100 * torch.randn(LENGTH, WIDTH)  # exp(100 * 100) is infinite in float32
    assert basic.attend_loop(x).isfinite().all()
    torch.testing.assert_close(basic.attend_loop(x), basic.attend(x))


@pytest.mark.parametrize("kernel", [kernels.loop, kernels.explicit, kernels.fused])
def test_multi_head_loop_equals_attention_module(matrices, kernel):
    x = torch.randn(2, LENGTH, WIDTH, dtype=torch.float64)
    attention = attention_with(matrices, kernel)
    torch.testing.assert_close(attention(x, Mask()), basic.multi_head_loop(x, *matrices, HEADS))


def test_multi_head_loop_matches_scalar_computation(matrices):
    to_queries, to_keys, to_values, unify = matrices
    x = torch.randn(LENGTH, WIDTH, dtype=torch.float64)
    head_width = WIDTH // HEADS
    merged = torch.zeros(LENGTH, WIDTH, dtype=torch.float64)
    for head in range(HEADS):
        rows = range(head * head_width, (head + 1) * head_width)
        for i in range(LENGTH):
            # Errata on eq. 9: the score is q . k, not q . x; the scale is that of the head.
            scores = [
                sum((to_queries[row] @ x[i]) * (to_keys[row] @ x[j]) for row in rows)
                / math.sqrt(head_width)
                for j in range(LENGTH)
            ]
            shares = [math.exp(score) for score in scores]
            for row in rows:
                merged[i, row] = sum(
                    share / sum(shares) * (to_values[row] @ x[j]) for j, share in enumerate(shares)
                )
    by_hand = torch.stack([unify @ y for y in merged])
    torch.testing.assert_close(basic.multi_head_loop(x[None], *matrices, HEADS)[0], by_hand)


def test_erratum_equation_9_scores_use_keys_not_inputs(matrices):
    to_queries, _, to_values, unify = matrices
    x = torch.randn(2, LENGTH, WIDTH, dtype=torch.float64)
    printed = basic.multi_head_loop(
        x, to_queries, torch.eye(WIDTH, dtype=x.dtype), to_values, unify, HEADS
    )
    assert not torch.allclose(printed, basic.multi_head_loop(x, *matrices, HEADS), atol=1e-3)


def test_erratum_equation_9_scale_uses_head_width_not_model_width(matrices):
    """Dividing by sqrt(E), as eq. 9 is printed, is what queries sqrt(H) times too small give."""
    to_queries, *others = matrices
    x = torch.randn(2, LENGTH, WIDTH, dtype=torch.float64)
    printed = basic.multi_head_loop(x, to_queries / math.sqrt(HEADS), *others, HEADS)
    ours = attention_with(matrices, kernels.fused)(x, Mask())
    assert not torch.allclose(printed, ours, atol=1e-3)
    one_head = basic.multi_head_loop(x, to_queries, *others, heads=1)
    weights = (x @ to_queries.T @ others[0] @ x.mT / math.sqrt(WIDTH)).softmax(dim=-1)
    torch.testing.assert_close(one_head, weights @ x @ others[1].T @ others[2].T)


def test_erratum_1_published_slice_cuts_time_axis_in_a_batch(matrices):
    """Erratum 1: `q[:, t:t+d]` is a slice of the width for one sequence, of time for a batch."""
    x = torch.randn(3, WIDTH, WIDTH, dtype=torch.float64)  # T = E: else it does not even run
    ours = basic.multi_head_loop(x, *matrices, HEADS)
    torch.testing.assert_close(published_figure(x[0], *matrices, HEADS, merge=-1), ours[0])
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        published_figure(x, *matrices, HEADS, merge=-1)
    # Glueing the pieces together again along time makes the shapes right, but not the numbers.
    sliced_in_time = published_figure(x, *matrices, HEADS, merge=1)
    assert sliced_in_time.shape == ours.shape
    assert not torch.allclose(sliced_in_time, ours, atol=1e-3)


def attention_with(matrices, kernel):
    to_queries, to_keys, to_values, unify = matrices
    attention = Attention(
        WIDTH, HEADS, bias=False, output=partial(nn.Linear, bias=False), kernel=kernel
    ).double()
    with torch.no_grad():
        attention.project.weight.copy_(torch.cat((to_queries, to_keys, to_values)))
        attention.output.weight.copy_(unify)
    return attention


def published_figure(x, to_queries, to_keys, to_values, unify, heads, merge):
    q, k, v = x @ to_queries.T, x @ to_keys.T, x @ to_values.T
    d = x.shape[-1] // heads
    t, y = 0, []
    for _ in range(heads):
        w_prime = q[:, t : t + d] @ k[:, t : t + d].transpose(-2, -1) / math.sqrt(d)
        y.append(torch.softmax(w_prime, dim=-1) @ v[:, t : t + d])
        t += d
    return torch.cat(y, dim=merge) @ unify.T
