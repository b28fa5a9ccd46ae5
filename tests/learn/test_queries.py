"""Chapter 3: common wrong answers, and solutions compared with core and autograd."""

import math

import pytest
import torch

from clearformer.core.kernels import explicit
from clearformer.core.masks import Mask
from clearformer.learn import queries as solutions
from clearformer.learn.catalogue import find
from clearformer.learn.judge import judge


def not_transposed(x, to_queries, to_keys):
    q, k = torch.matmul(x, to_queries), torch.matmul(x, to_keys)
    return torch.bmm(q, k.mT)


def exchanged(x, to_queries, to_keys):
    q, k = x @ to_keys.T, x @ to_queries.T
    return q @ k.mT


def keys_are_inputs(x, to_queries, to_keys):
    return torch.einsum("bie,bje->bij", x @ to_queries.T, x)


def scaled(x, to_queries, to_keys):
    return torch.einsum("bie,bje->bij", x @ to_queries.T, x @ to_keys.T) / math.sqrt(x.size(-1))


def unscaled(q, k, v):
    return torch.softmax(torch.bmm(q, k.mT), dim=2) @ v


def by_the_width(q, k, v):
    return torch.softmax(torch.bmm(q, k.mT) / q.size(2), dim=2) @ v


def by_the_length(q, k, v):
    return torch.softmax(torch.bmm(q, k.mT) / k.size(1) ** 0.5, dim=2) @ v


def scaled_after(q, k, v):
    return torch.softmax(torch.bmm(q, k.mT), dim=2) @ v / q.size(2) ** 0.5


def along_queries(q, k, v):
    return torch.softmax(torch.bmm(q, k.mT) / q.size(2) ** 0.5, dim=-2) @ v


def diagonal(raw):
    w = torch.softmax(raw, 0)
    return torch.diag(w - w**2)


def numerator(raw):
    return torch.eye(len(raw)) * torch.softmax(raw, 0)


def sign(raw):
    w = torch.softmax(raw, 0)
    return w[:, None] * w[None] - torch.diag(w)


def vector(raw):
    w = torch.softmax(raw, 0)
    return w - w**2


@pytest.mark.parametrize(
    ("number", "answer", "said"),
    [
        ("3.1", not_transposed, "the matrices are not transposed"),
        ("3.1", exchanged, "have changed places"),
        ("3.1", keys_are_inputs, "compared with the inputs"),
        ("3.1", scaled, "these are scaled"),
        ("3.2", unscaled, "the scale is missing"),
        ("3.2", by_the_width, "divided by D"),
        ("3.2", by_the_length, "the number of keys"),
        ("3.2", scaled_after, "scaled after the softmax"),
        ("3.2", along_queries, "softmax along the queries"),
        ("3.3", diagonal, "right on the diagonal"),
        ("3.3", numerator, "the numerator alone"),
        ("3.3", sign, "the sign is wrong"),
        ("3.3", vector, "one for each pair"),
    ],
)
def test_wrong_answers_get_specific_messages(number, answer, said):
    verdict = judge(find(number), answer)
    assert not verdict
    assert said in verdict.message


def test_attention_matches_kernel():
    q, k, v = torch.randn(2, 3, 8), torch.randn(2, 5, 8), torch.randn(2, 5, 8)
    wanted = explicit(q[:, None], k[:, None], v[:, None], Mask(), None, 0.0)[:, 0]
    torch.testing.assert_close(solutions.attention(q, k, v), wanted)


def test_softmax_gradient_matches_autograd():
    raw = torch.randn(6)
    wanted = torch.autograd.functional.jacobian(lambda s: s.softmax(0), raw)
    torch.testing.assert_close(solutions.softmax_gradient(raw), wanted)
