"""Chapter 6: wrong answers as people write them, and the solutions beside core."""

import pytest
import torch

from clearformer.core.heads import Classifier, mean_pool
from clearformer.extensions.heads import max_pool
from clearformer.learn import classifying as solutions
from clearformer.learn.catalogue import find
from clearformer.learn.judge import judge


def with_padding(hidden, real):
    return hidden.sum(dim=1) / hidden.shape[1]


def divided_by_length(hidden, real):
    return torch.where(real.unsqueeze(-1), hidden, 0.0).mean(1)


def summed(hidden, real):
    return torch.einsum("bte,bt->be", hidden, real.float())


def divided_by_all(hidden, real):
    return torch.einsum("bte,bt->be", hidden, real.float()) / real.float().sum()


def over_the_width(hidden, real):
    return hidden.mean(-1)


def maximum_with_padding(hidden, real):
    return hidden.max(dim=1).values


def zero_wins(hidden, real):
    return torch.where(real.unsqueeze(-1), hidden, 0.0).max(dim=1).values


def place_of_maximum(hidden, real):
    return torch.where(real.unsqueeze(-1), hidden, -torch.inf).max(dim=1).indices


def maximum_of_the_width(hidden, real):
    return torch.where(real.unsqueeze(-1), hidden, -torch.inf).max(dim=2).values


def no_logarithm(pooled, weight, bias):
    return torch.softmax(torch.nn.functional.linear(pooled, weight, bias), -1)


def logits_only(pooled, weight, bias):
    return torch.nn.functional.linear(pooled, weight, bias)


def underflows(pooled, weight, bias):
    return torch.log(torch.softmax(torch.nn.functional.linear(pooled, weight, bias), -1))


def over_the_batch(pooled, weight, bias):
    return torch.log_softmax(torch.nn.functional.linear(pooled, weight, bias), 0)


def no_bias(pooled, weight, bias):
    return torch.log_softmax(torch.nn.functional.linear(pooled, weight), -1)


@pytest.mark.parametrize(
    ("number", "answer", "said"),
    [
        ("6.1", with_padding, "padding takes part in the average"),
        ("6.1", divided_by_length, "divided by T"),
        ("6.1", summed, "this is the sum"),
        ("6.1", divided_by_all, "of the whole batch"),
        ("6.1", over_the_width, "averaged over the width"),
        ("6.2", maximum_with_padding, "padding takes part in the maximum"),
        ("6.2", zero_wins, "zero wins"),
        ("6.2", place_of_maximum, "where the maximum stands"),
        ("6.2", maximum_of_the_width, "over the width"),
        ("6.3", no_logarithm, "the logarithm is missing"),
        ("6.3", logits_only, "these are logits"),
        ("6.3", underflows, "underflows to probability 0"),
        ("6.3", over_the_batch, "over the batch"),
        ("6.3", no_bias, "the bias is missing"),
    ],
)
def test_wrong_answer_gets_its_own_message(number, answer, said):
    verdict = judge(find(number), answer)
    assert not verdict
    assert said in verdict.message


def test_solutions_are_those_of_core():
    hidden, real = torch.randn(3, 5, 8), torch.ones(3, 5, dtype=torch.bool).tril(2)
    head = Classifier(mean_pool, 8, 4)
    pooled = solutions.mean_pool(hidden, real)
    torch.testing.assert_close(pooled, mean_pool(hidden, real))
    torch.testing.assert_close(solutions.max_pool(hidden, real), max_pool(hidden, real))
    torch.testing.assert_close(
        solutions.log_probabilities(pooled, head.project.weight, head.project.bias),
        head(hidden, real).log_softmax(-1),
    )
