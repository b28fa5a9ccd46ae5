"""Chapter 4: common wrong answers, and solutions compared with core."""

import pytest
import torch

from clearformer.core.attention import Attention
from clearformer.learn import heads as solutions
from clearformer.learn.catalogue import find
from clearformer.learn.judge import judge


def straight_view(x, heads):
    b, t, e = x.shape
    return x.view(b, heads, t, e // heads)


def not_transposed(x, heads):
    b, t, e = x.shape
    return x.view(b, t, heads, e // heads)


def interleaved(x, heads):
    return torch.stack([x[..., head::heads] for head in range(heads)], dim=1)


def merged_by_view(y):
    b, h, t, d = y.shape
    return y.contiguous().view(b, t, h * d)


def added(y):
    return sum(y.unbind(1))


def averaged(y):
    return sum(y.unbind(1)) / y.shape[1]


def merged_interleaved(y):
    return torch.stack(list(y.unbind(1)), dim=-1).flatten(2)


def without_output(width, heads, head_width):
    return heads * 3 * (width * head_width)


def always_square(width, heads, head_width):
    return 3 * width**2 + width**2


def one_head(width, heads, head_width):
    return 3 * width * head_width + head_width * width


def square_output(width, heads, head_width):
    return heads * 3 * width * head_width + width**2


@pytest.mark.parametrize(
    ("number", "answer", "said"),
    [
        ("4.1", straight_view, "Split, then transpose"),
        ("4.1", not_transposed, "this is (B, T, H, D)"),
        ("4.1", interleaved, "every H-th number"),
        ("4.2", merged_by_view, "numbers of other tokens"),
        ("4.2", added, "the heads are added"),
        ("4.2", averaged, "the heads are averaged"),
        ("4.2", merged_interleaved, "are interleaved"),
        ("4.3", without_output, "W_o is missing"),
        ("4.3", always_square, "right for narrow heads only"),
        ("4.3", one_head, "that is one head"),
        ("4.3", square_output, "W_o is not width x width"),
    ],
)
def test_wrong_answers_get_specific_messages(number, answer, said):
    verdict = judge(find(number), answer)
    assert not verdict
    assert said in verdict.message


def test_merge_heads_inverts_split_heads():
    x = torch.randn(2, 5, 12)
    torch.testing.assert_close(solutions.merge_heads(solutions.split_heads(x, 3)), x)


@pytest.mark.parametrize(("width", "heads", "head_width"), [(16, 4, 4), (16, 4, 16), (12, 1, 12)])
def test_parameter_count_matches_attention_layer(width, heads, head_width):
    layer = Attention(width, heads, head_width=head_width, bias=False)
    counted = sum(each.weight.numel() for each in (layer.project, layer.output))
    assert solutions.parameters(width, heads, head_width) == counted
