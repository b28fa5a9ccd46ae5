"""Attention: projection, positions, cross-attention, dropout, and exact gradients."""

import re
from functools import partial

import pytest
import torch
from torch import nn

from clearformer.core import kernels
from clearformer.core.attention import Attention
from clearformer.core.cache import HiddenMemory
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal, Full, Local
from clearformer.core.positions import NoPosition, RelativeXL, Rotary
from clearformer.extensions.positions import ALiBi

WIDTH, HEADS = 8, 2

POSITIONS = {
    "none": NoPosition,
    "rotary": Rotary,
    "relative": RelativeXL,
    "alibi": ALiBi,
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("key_heads", [2, 1])
@pytest.mark.parametrize("position", POSITIONS)
def test_matches_step_by_step_computation(position, key_heads, bias, scrambled):
    head_width = WIDTH // HEADS
    attention = scrambled(
        Attention(
            WIDTH,
            HEADS,
            key_heads=key_heads,
            bias=bias,
            position=POSITIONS[position](),
            query_norm=nn.RMSNorm(head_width),
            key_norm=nn.RMSNorm(head_width),
        )
    )
    x, places = torch.randn(3, 5, WIDTH), torch.arange(5)
    projected = attention.project(x).unflatten(-1, (-1, head_width)).transpose(1, 2)
    q, k, v = projected.split((HEADS, key_heads, key_heads), dim=1)
    q = attention.scheme.rotate(attention.query_norm(q), places)
    k = attention.scheme.rotate(attention.key_norm(k), places)
    q, added = attention.scheme.score(q, k, attention.position)
    y = kernels.explicit(q, k, v, Mask(Causal()), added, 0.0)
    merged = torch.cat([y[:, head] for head in range(HEADS)], dim=-1)
    torch.testing.assert_close(attention(x, Mask(Causal())), attention.output(merged))


def test_bias_parameters_are_optional():
    assert Attention(WIDTH, HEADS).project.bias.shape == (3 * WIDTH,)
    assert Attention(WIDTH, HEADS).output.bias.shape == (WIDTH,)
    bare = Attention(WIDTH, HEADS, bias=False, output=partial(nn.Linear, bias=False))
    assert {name for name, _ in bare.named_parameters()} == {"project.weight", "output.weight"}
    assert Attention(WIDTH, 4, key_heads=1).project.weight.shape == (WIDTH + 2 * 2, WIDTH)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("position", ["none", "rotary"])
def test_project_heads_matches_separate_projections(position, bias):
    attention = Attention(
        WIDTH,
        4,
        key_heads=2,
        bias=bias,
        position=POSITIONS[position](),
        query_norm=nn.RMSNorm(2),
        key_norm=nn.RMSNorm(2),
    )
    x = torch.randn(3, 5, WIDTH)
    q, k, v = attention.project_heads(x, (x,))
    keys, values = attention.keys_values(x)
    torch.testing.assert_close(keys, k)
    torch.testing.assert_close(values, v)
    # Without a source there are queries alone: all keys are another sequence's.
    queries, none, nothing = attention.project_heads(x, ())
    torch.testing.assert_close(queries, q)
    assert none.shape == nothing.shape == (3, 2, 0, 2)
    # A memory comes before x, and the queries are the last of the keys' positions.
    memory = torch.randn(3, 4, WIDTH)
    queries, every, _ = attention.project_heads(x, (memory, x))
    torch.testing.assert_close(every, torch.cat((attention.keys_values(memory)[0], k), dim=2))
    placed = attention.rotate(queries, every, end=9)
    torch.testing.assert_close(placed[1][:, :, 4:], attention.rotate(q, k, end=9)[1])
    torch.testing.assert_close(placed[0], attention.rotate(q, k, end=9)[0])


def test_grouped_query_attention_equals_repeated_key_heads():
    grouped = Attention(WIDTH, 4, key_heads=2)
    full = Attention(WIDTH, 4)
    head_width = 2
    with torch.no_grad():
        for mine, theirs in zip(
            full.project.parameters(), grouped.project.parameters(), strict=True
        ):
            q, k, v = theirs.split((WIDTH, WIDTH // 2, WIDTH // 2))

            def twice(rows):
                return rows.unflatten(0, (2, head_width)).repeat_interleave(2, dim=0).flatten(0, 1)

            mine.copy_(torch.cat((q, twice(k), twice(v))))
        full.output.load_state_dict(grouped.output.state_dict())
    x = torch.randn(3, 5, WIDTH)
    torch.testing.assert_close(grouped(x, Mask(Causal())), full(x, Mask(Causal())))


def test_cross_attention_uses_keys_and_values_of_context_only():
    attention = Attention(WIDTH, HEADS)
    x, context = torch.randn(3, 4, WIDTH), torch.randn(3, 6, WIDTH)
    attention_mask = torch.tensor(
        [[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1]]
    ).bool()
    y = attention(x, Mask(Full(), attention_mask), attention.freeze(context))
    to_q, to_k, to_v = attention.project.weight.chunk(3)
    q_bias, k_bias, v_bias = attention.project.bias.chunk(3)

    def split(matrix, bias, tokens):
        return (tokens @ matrix.T + bias).unflatten(-1, (HEADS, -1)).transpose(1, 2)

    q, k, v = split(to_q, q_bias, x), split(to_k, k_bias, context), split(to_v, v_bias, context)
    by_hand = (
        kernels.loop(q, k, v, Mask(Full(), attention_mask), None, 0.0).transpose(1, 2).flatten(-2)
    )
    torch.testing.assert_close(y, attention.output(by_hand))


@pytest.mark.parametrize("kernel", [kernels.loop, kernels.explicit, kernels.fused])
def test_dropout_applies_to_attention_weights_only_in_training(kernel):
    attention = Attention(WIDTH, HEADS, kernel=kernel, dropout=0.5)
    x = torch.randn(2, 5, WIDTH)

    def run(attention):
        torch.manual_seed(1)
        return attention(x, Mask(Causal()))

    q, k, v = attention.project_heads(x, (x,))
    torch.manual_seed(1)
    table = nn.functional.dropout(kernels.weights(q, k, Mask(Causal()), None), 0.5)
    dropped = attention.output((table @ v).transpose(1, 2).flatten(-2))
    torch.testing.assert_close(run(attention.train()), dropped)
    attention.eval()
    undropped = kernels.weights(q, k, Mask(Causal()), None) @ v
    torch.testing.assert_close(
        run(attention), attention.output(undropped.transpose(1, 2).flatten(-2))
    )


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("pattern", [Full(), Causal() & Local(2)])
@pytest.mark.parametrize("memory", [0, 2])
def test_gradcheck(position, pattern, memory, scrambled):
    width, heads = 4, 2
    attention = scrambled(
        Attention(
            width,
            heads,
            key_heads=1,
            position=POSITIONS[position](),
            query_norm=nn.RMSNorm(2, eps=1e-6),
            key_norm=nn.RMSNorm(2, eps=1e-6),
        ).double()
    )
    parameters = dict(attention.named_parameters())
    cache = HiddenMemory(memory)
    cache.states = torch.randn(2, memory, width, dtype=torch.float64)
    attention_mask = torch.tensor([[False, True, True, True, True], [True] * 5])[:, : memory + 3]

    def run(x, *values):
        named = dict(zip(parameters, values, strict=True))
        return torch.func.functional_call(
            attention, named, (x, Mask(pattern, attention_mask), cache)
        )

    x = torch.randn(2, 3, width, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(run, (x, *parameters.values()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"width": 10, "heads": 4},
            "width is 10 and heads is 4, but the heads must divide the width: use 5 heads",
        ),
        (
            {"width": 768, "heads": 11},
            "width is 768 and heads is 11, but the heads must divide the width: use 12 heads",
        ),
        (
            {"width": 12, "heads": 6, "key_heads": 4},
            "heads is 6 and key_heads is 4, but the key heads must divide the heads: "
            "use 3 key heads",
        ),
    ],
)
def test_rejects_heads_that_do_not_divide_width(arguments, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Attention(**arguments)


def test_head_width_may_differ_from_width_over_heads():
    torch.manual_seed(0)
    wide = Attention(12, 5, key_heads=1, head_width=8)
    assert wide.project.weight.shape == ((5 + 1 + 1) * 8, 12)
    assert wide.output.weight.shape == (12, 5 * 8)
    x = torch.randn(2, 6, 12)
    plain = Attention(12, 5, key_heads=1, head_width=8, kernel=kernels.loop)
    plain.load_state_dict(wide.state_dict())
    mask = Mask(Causal())
    assert wide(x, mask).shape == x.shape
    torch.testing.assert_close(wide(x, mask), plain(x, mask))
