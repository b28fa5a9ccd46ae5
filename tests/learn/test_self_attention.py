"""Chapter 1: common wrong answers, and solutions compared with core."""

import pytest
import torch

from clearformer.core.basic import attend
from clearformer.learn import self_attention as solutions
from clearformer.learn.catalogue import find
from clearformer.learn.judge import judge


def features(x):
    return torch.einsum("bti,btj->bij", x, x)


def only_itself(x):
    return torch.einsum("bte,bte->bt", x, x)


def cosines(x):
    return torch.cosine_similarity(x[:, :, None], x[:, None], dim=-1)


def scaled_too_early(x):
    return torch.bmm(x, x.transpose(1, 2)) / (x.size(2) ** (1 / 2))


def columns(raw):
    e = torch.exp(raw - raw.max(dim=1, keepdim=True).values)
    return e / e.sum(1, keepdim=True)


def overflowing(raw):
    return torch.exp(raw) / torch.exp(raw).sum(-1)[..., None]


def no_exponential(raw):
    return raw / raw.sum(2, keepdim=True)


def over_the_batch(raw):
    return torch.nn.functional.softmax(raw, dim=0)


def sigmoid(raw):
    return torch.sigmoid(raw)


def transposed_weights(x):
    w = torch.softmax(torch.bmm(x, x.mT), dim=2)
    return torch.bmm(w.mT, x)


def no_softmax(x):
    return torch.bmm(torch.bmm(x, x.mT), x)


def average(x):
    return torch.stack([x.mean(1)] * x.shape[1], dim=1)


def without_itself(x):
    raw = torch.bmm(x, x.mT)
    for i in range(x.shape[1]):
        raw[:, i, i] = -torch.inf
    return torch.bmm(raw.softmax(-1), x)


def hard(x):
    best = torch.bmm(x, x.mT).argmax(dim=2)
    return torch.stack([row[pick] for row, pick in zip(x, best, strict=True)])


@pytest.mark.parametrize(
    ("number", "answer", "said"),
    [
        ("1.1", features, "compares features, not tokens"),
        ("1.1", only_itself, "each vector with itself"),
        ("1.1", cosines, "these are cosines"),
        ("1.1", scaled_too_early, "these are scaled scores"),
        ("1.2", columns, "the columns sum to one"),
        ("1.2", overflowing, "exp overflows"),
        ("1.2", no_exponential, "the exponential of eq. 2 is missing"),
        ("1.2", over_the_batch, "sequences must not mix"),
        ("1.2", sigmoid, "one score at a time"),
        ("1.3", transposed_weights, "the weights are transposed"),
        ("1.3", no_softmax, "the softmax of eq. 2 is missing"),
        ("1.3", average, "the plain average"),
        ("1.3", without_itself, "j = i included"),
        ("1.3", hard, "softmax is softer"),
    ],
)
def test_wrong_answers_get_specific_messages(number, answer, said):
    verdict = judge(find(number), answer)
    assert not verdict
    assert said in verdict.message


def test_solutions_match_core():
    x = torch.randn(3, 6, 4)
    composed = solutions.weights(solutions.raw_scores(x)) @ x
    torch.testing.assert_close(solutions.self_attention(x), attend(x))
    torch.testing.assert_close(composed, attend(x))
