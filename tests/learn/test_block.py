"""Chapter 5: common wrong answers, and solutions compared with core and torch."""

import pytest
import torch
from torch import nn

from clearformer.core.attention import Attention
from clearformer.core.block import Block, FeedForward
from clearformer.core.masks import Mask
from clearformer.learn import block as solutions
from clearformer.learn.catalogue import find
from clearformer.learn.judge import judge


def standardized(x, weight, bias, eps, dim):
    variance = x.var(dim=dim, keepdim=True, correction=0)
    return (x - x.mean(dim=dim, keepdim=True)) / torch.sqrt(variance + eps) * weight + bias


def along_tokens(x, weight, bias, eps):
    return standardized(x, weight, bias, eps, 1)


def along_the_batch(x, weight, bias, eps):
    return standardized(x, weight, bias, eps, 0)


def whole_sequence(x, weight, bias, eps):
    return torch.nn.functional.layer_norm(x, x.shape[1:], eps=eps) * weight + bias


def sample_variance(x, weight, bias, eps):
    return (x - x.mean(2, keepdim=True)) / (
        x.std(2, keepdim=True) ** 2 + eps
    ) ** 0.5 * weight + bias


def eps_outside(x, weight, bias, eps):
    std = x.std(2, keepdim=True, correction=0)
    return weight * (x - x.mean(2, keepdim=True)) / (std + eps) + bias


def linear(x, up, up_bias, down, down_bias):
    return nn.functional.linear(nn.functional.linear(x, up, up_bias), down, down_bias)


def relu_twice(x, up, up_bias, down, down_bias):
    return nn.functional.linear(nn.functional.linear(x, up, up_bias).relu(), down, down_bias).relu()


def relu_at_the_end(x, up, up_bias, down, down_bias):
    return linear(x, up, up_bias, down, down_bias).clamp(min=0)


def first_bias_missing(x, up, up_bias, down, down_bias):
    return nn.functional.linear(nn.functional.linear(x, up).relu(), down, down_bias)


def first_bias_late(x, up, up_bias, down, down_bias):
    return nn.functional.linear(nn.functional.linear(x, up).relu() + up_bias, down, down_bias)


def pre_norm(x, attention, feed_forward, norm1, norm2):
    x = x + attention(norm1(x))
    x = x + feed_forward(norm2(x))
    return x


def no_residuals(x, attention, feed_forward, norm1, norm2):
    x = norm1(attention(x))
    return norm2(feed_forward(x))


def from_the_input(x, attention, feed_forward, norm1, norm2):
    attended = norm1(attention(x) + x)
    return norm2(feed_forward(attended) + x)


def norm_inside(x, attention, feed_forward, norm1, norm2):
    x = x + norm1(attention(x))
    return x + norm2(feed_forward(x))


def half(x, attention, feed_forward, norm1, norm2):
    return norm1(x + attention(x))


def one_residual(x, attention, feed_forward, norm1, norm2):
    x = norm1(x + attention(x))
    return norm2(feed_forward(x))


@pytest.mark.parametrize(
    ("number", "answer", "said"),
    [
        ("5.1", along_tokens, "normalized along the tokens"),
        ("5.1", along_the_batch, "as batch norm does"),
        ("5.1", whole_sequence, "one mean for a whole sequence"),
        ("5.1", sample_variance, "divides by E - 1"),
        ("5.1", eps_outside, "under the root"),
        ("5.2", linear, "ReLU is missing"),
        ("5.2", relu_twice, "a second ReLU"),
        ("5.2", relu_at_the_end, "ReLU is at the end"),
        ("5.2", first_bias_missing, "the first bias is missing"),
        ("5.2", first_bias_late, "added after ReLU"),
        ("5.3", pre_norm, "this is pre-norm"),
        ("5.3", no_residuals, "both residual connections are missing"),
        ("5.3", from_the_input, "starts at the input of the block"),
        ("5.3", norm_inside, "normalized before they are added"),
        ("5.3", half, "the feed-forward half is missing"),
        ("5.3", one_residual, "around feed_forward is missing"),
    ],
)
def test_wrong_answers_get_specific_messages(number, answer, said):
    verdict = judge(find(number), answer)
    assert not verdict
    assert said in verdict.message


def test_solutions_match_core_and_torch():
    layer = Block(Attention(8, 2), FeedForward(8, 32), (nn.LayerNorm(8), nn.LayerNorm(8)))
    x = torch.randn(2, 5, 8)
    norms = [
        lambda x, norm=norm: solutions.layer_norm(x, norm.weight, norm.bias, norm.eps)
        for norm in (layer.attention_norm, layer.feed_forward_norm)
    ]
    up, down = layer.feed_forward.up, layer.feed_forward.down
    found = solutions.block(
        x,
        lambda x: layer.attention(x, Mask()),
        lambda x: solutions.feed_forward(x, up.weight, up.bias, down.weight, down.bias),
        *norms,
    )
    torch.testing.assert_close(found, layer(x, Mask()))
