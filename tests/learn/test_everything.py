"""Chapter 16: wrong answers as people write them, and the solutions beside core."""

import pytest
import torch
import torch.nn.functional as F

from clearformer.core.kernels import explicit
from clearformer.core.masks import Mask
from clearformer.core.patterns import Local
from clearformer.extensions.patterns import Graph, PerHead
from clearformer.learn import everything as solutions
from clearformer.learn.catalogue import find
from clearformer.learn.judge import judge


def table(edges, nodes, *, itself=True):
    looks = [[(i, j) in edges or (itself and i == j) for j in range(nodes)] for i in range(nodes)]
    return torch.tensor(looks)


def without_itself(edges, nodes):
    return table(edges, nodes, itself=False)


def transposed(edges, nodes):
    return table([(j, i) for i, j in edges], nodes)


def both_ways(edges, nodes):
    return table([*edges, *((j, i) for i, j in edges)], nodes)


def inverted(edges, nodes):
    return table(edges, nodes) == 0


def with_nan(q, k, v, tables):
    bias = torch.zeros(tables.shape).masked_fill(~tables, float("-inf"))
    return torch.softmax(torch.bmm(q, k.mT) / q.shape[-1] ** 0.5 + bias, dim=-1) @ v


def untyped(q, k, v, tables):
    return F.scaled_dot_product_attention(q, k, v, tables[0] | tables[1])


def masked_late(q, k, v, tables):
    return torch.where(tables, (q @ k.mT / 2).softmax(-1), 0.0) @ v


def zero_scores(q, k, v, tables):
    return torch.where(tables, q @ k.mT / 2, 0.0).softmax(-1) @ v


def large_negative(q, k, v, tables):
    return torch.where(tables, q @ k.mT / 2, -1e9).softmax(-1) @ v


@pytest.mark.parametrize(
    ("number", "answer", "said"),
    [
        ("16.1", without_itself, "nodes do not see themselves"),
        ("16.1", transposed, "rows and columns are exchanged"),
        ("16.1", both_ways, "every edge goes both ways"),
        ("16.1", inverted, "the table is inverted"),
        ("16.2", with_nan, "a query that sees nothing gives NaN"),
        ("16.2", untyped, "all heads use all relations"),
        ("16.2", masked_late, "masked after the softmax"),
        ("16.2", zero_scores, "set to 0, not to -inf"),
        ("16.2", large_negative, "a query that sees nothing looks at everything"),
    ],
)
def test_a_wrong_answer_gets_its_own_message(number, answer, said):
    verdict = judge(find(number), answer)
    assert not verdict
    assert said in verdict.message


def test_the_solutions_are_core():
    edges = ((0, 2), (2, 1))
    assert solutions.relation_table(edges, 3).equal((Graph(edges, 3) | Local(1)).table(3, 3))
    relations = PerHead((Graph(edges, 3), Graph(((1, 1),), 3)))
    tables = torch.stack([each.table(3, 3) for each in relations.patterns])
    q, k, v = torch.randn(3, 1, 2, 3, 4)
    expected = explicit(q, k, v, Mask(relations), None, 0.0)[0]
    torch.testing.assert_close(solutions.typed_attention(q[0], k[0], v[0], tables), expected)
