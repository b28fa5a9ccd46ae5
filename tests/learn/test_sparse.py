"""Chapter 14: wrong answers as people write them, and the solutions beside core."""

import pytest
import torch

from clearformer.core.kernels import explicit
from clearformer.core.masks import Mask
from clearformer.core.patterns import Causal, Fixed, Local, Strided
from clearformer.learn import sparse as solutions
from clearformer.learn.catalogue import find
from clearformer.learn.judge import judge


def differences(n):
    return torch.tensor([[i - j for j in range(n)] for i in range(n)])


def both_sides(n, stride):
    d = differences(n)
    return (d.abs() < stride) | (d % stride == 0)


def near_and_multiple(n, stride):
    d = differences(n)
    return (d >= 0) & (d < stride) & (d % stride == 0)


def multiple_places(n, stride):
    table = (differences(n) >= 0) & (differences(n) < stride)
    table[:, ::stride] |= differences(n)[:, ::stride] >= 0
    return table


def one_stride_only(n, stride):
    d = differences(n)
    return (d >= 0) & (d <= stride) | (d > 0) & (d % stride == 0) & (d // stride != 2)


def transposed(n, stride):
    return (Causal() & (Local(stride) | Strided(stride))).table(n, n).T


def no_residual(tables):
    found = tables[0].float()
    for table in tables[1:]:
        found = table.float() @ found
    return found > 0


def reverse_order(tables):
    itself = torch.eye(len(tables[0]))
    found = itself
    for table in tables:
        found = found @ torch.maximum(table.float(), itself)
    return found > 0


def merged(tables):
    found = torch.eye(len(tables[0])).bool()
    for table in tables:
        found = found | table
    return found


def exchanged(tables):
    return solutions.reached(tables).mT


def dense(q, k, v, stride, *, scale=None, pattern=None):
    pattern = Causal() & Fixed(stride, 1) if pattern is None else pattern
    seen = pattern.table(len(q), len(q))
    scores = q @ k.T * (q.shape[1] ** -0.5 if scale is None else scale)
    return scores.masked_fill(~seen, float("-inf")).softmax(-1) @ v


def no_summaries(q, k, v, stride):
    q, k, v = (each.unflatten(0, (-1, stride)) for each in (q, k, v))
    mask = torch.ones(stride, stride).tril().bool()
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)
    return y.flatten(0, 1)


def blocks(q, k, v, stride, *, first_hidden=0, softmaxes=1, causal=True):
    parts, count = [each.unflatten(0, (-1, stride)) for each in (q, k, v)], len(q) // stride
    queries, keys, values = parts
    own = queries @ keys.mT / q.shape[1] ** 0.5
    if causal:
        own = own.masked_fill(torch.ones(stride, stride).triu(1) > 0, float("-inf"))
    summary = queries @ keys[:, -1].T / q.shape[1] ** 0.5
    hidden = torch.ones(count, count).triu(first_hidden)[:, None] > 0
    summary = summary.masked_fill(hidden, float("-inf"))
    if softmaxes == 2:
        shares = summary.softmax(-1).nan_to_num(0)
        return (own.softmax(-1) @ values + shares @ values[:, -1]).flatten(0, 1)
    share = torch.cat([own, summary], -1).softmax(-1)
    y = share[..., :stride] @ values + share[..., stride:] @ values[:, -1]
    return y.flatten(0, 1)


def own_summary(q, k, v, stride):
    return blocks(q, k, v, stride, first_hidden=1)


def two_softmaxes(q, k, v, stride):
    return blocks(q, k, v, stride, softmaxes=2)


def whole_block(q, k, v, stride):
    return blocks(q, k, v, stride, causal=False)


@pytest.mark.parametrize(
    ("number", "answer", "said"),
    [
        ("14.1", both_sides, "it is not causal"),
        ("14.1", near_and_multiple, "near *or* a multiple"),
        ("14.1", multiple_places, "that is a fixed pattern"),
        ("14.1", one_stride_only, "multiples beyond the first are missing"),
        ("14.1", transposed, "rows and columns are exchanged"),
        ("14.2", no_residual, "a place forgets itself"),
        ("14.2", reverse_order, "in reverse order"),
        ("14.2", merged, "the tables are merged"),
        ("14.2", exchanged, "rows and columns are exchanged"),
        ("14.3", no_summaries, "only the own block is seen"),
        ("14.3", own_summary, "it counts twice"),
        ("14.3", two_softmaxes, "one softmax over both"),
        ("14.3", whole_block, "within its block a query sees later tokens"),
        ("14.3", lambda q, k, v, stride: dense(q, k, v, stride, scale=1.0), "the scale is missing"),
        ("14.3", dense, "it makes a tensor of 20,736 elements, and at most 6,912 are allowed"),
    ],
)
def test_a_wrong_answer_gets_its_own_message(number, answer, said):
    verdict = judge(find(number), answer)
    assert not verdict
    assert said in verdict.message


def test_an_answer_of_ones_own_that_is_cheap_passes():
    assert judge(find("14.3"), blocks)


def test_the_solutions_are_core():
    pattern = Causal() & (Local(4) | Strided(4))
    assert solutions.strided_table(20, 4).equal(pattern.table(20, 20))
    q, k, v = torch.randn(3, 1, 1, 64, 8)
    expected = explicit(q, k, v, Mask(Causal() & Fixed(8, 1)), None, 0.0)[0, 0]
    torch.testing.assert_close(solutions.fixed_attention(q[0, 0], k[0, 0], v[0, 0], 8), expected)
