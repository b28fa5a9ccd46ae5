"""Chapter 12: wrong answers as people write them, and the solutions beside the library."""

import pytest
import torch
from torch import nn

from clearformer.builder import outline
from clearformer.core.attention import Attention
from clearformer.core.block import Block, FeedForward, pre_norm
from clearformer.core.masks import Mask
from clearformer.families import gpt2
from clearformer.learn import gpt2 as solutions
from clearformer.learn.catalogue import find
from clearformer.learn.judge import judge


def post_norm(x, attention, feed_forward, norm1, norm2):
    x = norm1(x + attention(x))
    return norm2(x + feed_forward(x))


def from_the_copy(x, attention, feed_forward, norm1, norm2):
    x = norm1(x)
    x = x + attention(x)
    x = norm2(x)
    return x + feed_forward(x)


def one_norm(x, attention, feed_forward, norm1, norm2):
    x = x + attention(norm1(x))
    return x + feed_forward(x)


def side_by_side(x, attention, feed_forward, norm1, norm2):
    return attention(norm1(x)) + feed_forward(norm2(x)) + x


def norms_behind(x, attention, feed_forward, norm1, norm2):
    x = x + norm1(attention(x))
    return x + norm2(feed_forward(x))


def overlapping(tokens, first, second, new):
    found, skip = [], False
    for place, token in enumerate(tokens):
        pair = tuple(tokens[place : place + 2]) == (first, second)
        if pair:
            found.append(new)
        elif not skip:
            found.append(token)
        skip = pair
    return found


def first_only(tokens, first, second, new):
    tokens = list(tokens)
    for place in range(len(tokens)):
        if tokens[place : place + 2] == [first, second]:
            tokens[place : place + 2] = [new]
            break
    return tokens


def either_order(tokens, first, second, new):
    found = list(tokens)
    place = 0
    while place < len(found) - 1:
        if {found[place], found[place + 1]} == {first, second}:
            found[place : place + 2] = [new]
        place += 1
    return found


def single_tokens(tokens, first, second, new):
    return [new if token in (first, second) else token for token in tokens]


def counted(layers, width, vocabulary, length, *, tied=True, biases=1, last=1, places=1):
    block = 12 * width**2 + 9 * width * biases + 4 * width
    tables = vocabulary * (1 if tied else 2) + length * places
    return tables * width + layers * block + 2 * width * last


def matrices_only(layers, width, vocabulary, length):
    return width * (vocabulary + length) + layers * (4 + 8) * width**2


@pytest.mark.parametrize(
    ("number", "answer", "said"),
    [
        ("12.1", post_norm, "this is post-norm"),
        ("12.1", from_the_copy, "the normalized copy is what is added to"),
        ("12.1", one_norm, "norm2 is missing"),
        ("12.1", side_by_side, "side by side"),
        ("12.1", norms_behind, "the norms stand behind the parts"),
        ("12.2", overlapping, "overlapping pairs"),
        ("12.2", first_only, "only the first pair is merged"),
        ("12.2", either_order, "in either order"),
        ("12.2", single_tokens, "single tokens are replaced"),
        ("12.3", lambda *sizes: counted(*sizes, tied=False), "the token table counts twice"),
        ("12.3", matrices_only, "biases and norms are missing"),
        ("12.3", lambda *sizes: counted(*sizes, last=0), "the norm at the end is missing"),
        ("12.3", lambda *sizes: counted(*sizes, places=0), "the table of positions is missing"),
        ("12.3", lambda *sizes: counted(*sizes, biases=0), "biases are missing"),
    ],
)
def test_a_wrong_answer_gets_its_own_message(number, answer, said):
    verdict = judge(find(number), answer)
    assert not verdict
    assert said in verdict.message


def test_the_solutions_are_the_library():
    norms = nn.LayerNorm(8), nn.LayerNorm(8)
    layer = Block(Attention(8, 2), FeedForward(8, 32), norms, pre_norm)
    x = torch.randn(2, 5, 8)
    found = solutions.gpt2_block(
        x, lambda x: layer.attention(x, Mask()), layer.feed_forward, *norms
    )
    torch.testing.assert_close(found, layer(x, Mask()))
    config = gpt2("small")
    size = sum(weight.numel() for weight in outline(config).parameters())
    assert solutions.gpt2_parameters(12, 768, 50_257, 1024) == size == 124_439_808
