"""Chapter 10: wrong answers as people write them, and the solutions beside core."""

import pytest
import torch

from clearformer.core.attention import Attention
from clearformer.core.masks import Mask
from clearformer.learn import original as solutions
from clearformer.learn.catalogue import find
from clearformer.learn.judge import judge


def attended(q, k, v, dim=2):
    return torch.bmm(torch.softmax(torch.bmm(q, k.mT) / q.shape[2] ** 0.5, dim=dim), v)


def self_attention(x, context, to_queries, to_keys, to_values):
    return attended(x @ to_queries.T, x @ to_keys.T, x @ to_values.T)


def context_asks(x, context, to_queries, to_keys, to_values):
    return attended(context @ to_queries.T, x @ to_keys.T, x @ to_values.T)


def all_context(x, context, to_queries, to_keys, to_values):
    return attended(context @ to_queries.T, context @ to_keys.T, context @ to_values.T)


def unscaled(x, context, to_queries, to_keys, to_values):
    scores = (x @ to_queries.T) @ (context @ to_keys.T).mT
    return torch.softmax(scores, dim=2) @ (context @ to_values.T)


def along_queries(x, context, to_queries, to_keys, to_values):
    return attended(x @ to_queries.T, context @ to_keys.T, context @ to_values.T, dim=1)


def unshifted(targets, start):
    return targets


def rolled(targets, start):
    return targets.roll(1, dims=-1)


def to_the_left(targets, start):
    shifted = torch.full_like(targets, start)
    shifted[:, :-1] = targets[:, 1:]
    return shifted


def too_long(targets, start):
    return torch.nn.functional.pad(targets, (1, 0), value=start)


@pytest.mark.parametrize(
    ("number", "answer", "said"),
    [
        ("10.1", self_attention, "this is self-attention"),
        ("10.1", context_asks, "the roles are exchanged"),
        ("10.1", all_context, "everything is made of context"),
        ("10.1", unscaled, "the scale is missing"),
        ("10.1", along_queries, "softmax goes along the vectors of x"),
        ("10.2", unshifted, "nothing is shifted"),
        ("10.2", rolled, "comes round to the front"),
        ("10.2", to_the_left, "shifted to the left"),
        ("10.2", too_long, "one longer than the targets"),
    ],
)
def test_a_wrong_answer_gets_its_own_message(number, answer, said):
    verdict = judge(find(number), answer)
    assert not verdict
    assert said in verdict.message


def test_cross_attention_is_core():
    layer = Attention(8, 1, bias=False)
    x, context = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    found = solutions.cross_attention(x, context, *layer.project.weight.chunk(3))
    expected = layer(x, Mask(), layer.freeze(context))
    torch.testing.assert_close(layer.output(found), expected)
