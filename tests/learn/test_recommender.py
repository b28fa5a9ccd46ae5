"""Chapter 2: common wrong answers, and properties of the solutions."""

import pytest
import torch

from clearformer.core.basic import attend
from clearformer.learn import recommender as solutions
from clearformer.learn.catalogue import find
from clearformer.learn.judge import judge


def movies_first(users, movies):
    return torch.einsum("mf,uf->mu", movies, users)


def cosines(users, movies):
    return torch.cosine_similarity(users[:, None], movies[None], dim=2)


def distance(users, movies):
    return -(users[:, None] - movies[None]).norm(dim=2)


def averaged(users, movies):
    return users @ movies.T / users.shape[1]


def unknown_as_zero(users, movies, ratings, known):
    return torch.nn.functional.mse_loss(users @ movies.T, ratings)


def divided_by_all(users, movies, ratings, known):
    errors = (users @ movies.T - ratings) ** 2 * known
    return errors.sum() / known.numel()


def summed(users, movies, ratings, known):
    return (((users @ movies.T - ratings) * known) ** 2).sum()


def absolute(users, movies, ratings, known):
    return torch.nn.functional.l1_loss((users @ movies.T)[known], ratings[known])


def root(users, movies, ratings, known):
    return torch.nn.functional.mse_loss((users @ movies.T)[known], ratings[known]) ** 0.5


def twice(y, order):
    return torch.index_select(y, 0, order)


def unchanged(y, order):
    return y.clone()


def reversed_rows(y, order):
    return y[torch.arange(len(y) - 1, -1, -1)]


@pytest.mark.parametrize(
    ("number", "answer", "said"),
    [
        ("2.1", movies_first, "a row must be a user"),
        ("2.1", cosines, "these are cosines"),
        ("2.1", distance, "this is a distance"),
        ("2.1", averaged, "the terms are averaged"),
        ("2.2", unknown_as_zero, "unknown ratings count as zeros"),
        ("2.2", divided_by_all, "the divisor is not"),
        ("2.2", summed, "the mean was asked for"),
        ("2.2", absolute, "mean absolute error"),
        ("2.2", root, "leave the root out"),
        ("2.3", twice, "shuffles a second time"),
        ("2.3", unchanged, "still the shuffled order"),
        ("2.3", reversed_rows, "reverses the rows"),
    ],
)
def test_wrong_answers_get_specific_messages(number, answer, said):
    verdict = judge(find(number), answer)
    assert not verdict
    assert said in verdict.message


def test_restore_inverts_shuffle_of_self_attention():
    x, order = torch.randn(7, 4), torch.randperm(7)
    torch.testing.assert_close(solutions.restore(attend(x[order]), order), attend(x))


def test_unknown_ratings_have_no_effect():
    (users, movies, ratings, known), *_ = find("2.2").cases()
    other = ratings.masked_fill(~known, 9.0)
    assert solutions.loss(users, movies, ratings, known) == solutions.loss(
        users, movies, other, known
    )
