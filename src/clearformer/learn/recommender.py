"""Exercises of chapter 2: the recommender, and the order of a set."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.learn.exercise import Case, Exercise, Mistake, draw


def predict(users: Tensor, movies: Tensor) -> Tensor:
    return users @ movies.T  # (U, M)


def loss(users: Tensor, movies: Tensor, ratings: Tensor, known: Tensor) -> Tensor:
    errors = (users @ movies.T - ratings)[known]
    return errors.square().mean()


def restore(y: Tensor, order: Tensor) -> Tensor:
    return y[order.argsort()]  # (T, E)


def _tables() -> list[Case]:
    return [(draw(4, 3), draw(6, 3, seed=1)), (draw(5, 2, seed=2), draw(5, 2, seed=3))]


def _ratings() -> list[Case]:
    known = torch.tensor([[1, 0, 1, 1, 0, 1], [0, 0, 1, 0, 1, 0]] * 2).bool()
    ratings = draw(4, 6, seed=2).masked_fill(~known, 0.0)
    return [(draw(4, 3), draw(6, 3, seed=1), ratings, known)]


def _orders() -> list[Case]:
    orders = torch.tensor([2, 0, 4, 1, 3]), torch.tensor([1, 2, 3, 0])
    return [(draw(len(order), 3, seed=len(order)), order) for order in orders]


EXERCISES = (
    Exercise(
        number="2.1",
        title="Scores of all users for all movies",
        task="users is (U, F), movies is (M, F): a row of features for each. Return the table of "
        "scores (U, M): entry u, m is the dot product of user u and movie m.",
        answer=predict,
        cases=_tables,
        hints=(
            "It is eq. 1 again, between two different sets of vectors.",
            "The features are summed over, so they must be the inner axis of a matrix product.",
            "(U, F) @ (F, M) is (U, M).",
        ),
        mistakes=(
            Mistake(
                lambda users, movies: movies @ users.T,
                "rows are movies and columns users: a row must be a user",
            ),
            Mistake(
                lambda users, movies: F.normalize(users, dim=1) @ F.normalize(movies, dim=1).T,
                "these are cosines: how strongly a user feels, the length of his vector, is lost",
            ),
            Mistake(
                lambda users, movies: -torch.cdist(users, movies),
                "this is a distance: a movie twice as romantic must get twice the score from "
                "romance, not a worse one for being far away",
            ),
            Mistake(
                lambda users, movies: (users[:, None] * movies).mean(dim=-1),
                "the terms are averaged: a dot product is their sum",
            ),
        ),
    ),
    Exercise(
        number="2.2",
        title="The loss over known ratings",
        task="ratings (U, M) holds the ratings and known (U, M) is True where there is one; "
        "unknown entries are 0 and mean nothing. Return the mean squared error of the dot products "
        "over the known ratings.",
        answer=loss,
        cases=_ratings,
        hints=(
            "What is a rating of 0 where nobody rated? Nothing: it must not enter the loss.",
            "A boolean table as an index keeps the entries that are True.",
            "Squared differences, [known], then .mean().",
        ),
        mistakes=(
            Mistake(
                lambda users, movies, ratings, known: (users @ movies.T - ratings).square().mean(),
                "unknown ratings count as zeros: the model would learn that nobody likes what he "
                "has not seen",
            ),
            Mistake(
                lambda users, movies, ratings, known: (
                    ((users @ movies.T - ratings) * known).square().mean()
                ),
                "the sum is right, the divisor is not: divide by the number of known ratings, not "
                "of all entries",
            ),
            Mistake(
                lambda users, movies, ratings, known: (
                    (users @ movies.T - ratings)[known].square().sum()
                ),
                "this is the sum of the squares: the mean was asked for",
            ),
            Mistake(
                lambda users, movies, ratings, known: (
                    (users @ movies.T - ratings)[known].abs().mean()
                ),
                "this is the mean absolute error: square the differences",
            ),
            Mistake(
                lambda users, movies, ratings, known: (
                    (users @ movies.T - ratings)[known].square().mean().sqrt()
                ),
                "this is the root of the mean squared error: leave the root out",
            ),
        ),
    ),
    Exercise(
        number="2.3",
        title="Self-attention sees a set: undo a shuffle",
        task="y is attend(x[order]), the outputs (T, E) for shuffled inputs. Return attend(x), "
        "without x: self-attention is permutation equivariant, so y holds it in another order.",
        answer=restore,
        cases=_orders,
        hints=(
            "Row n of y belongs to row order[n] of x.",
            "You need the permutation that undoes order.",
            "For a permutation, argsort is the inverse.",
        ),
        mistakes=(
            Mistake(
                lambda y, order: y[order],
                "this shuffles a second time: the inverse of order is needed",
            ),
            Mistake(
                lambda y, order: y,
                "this is still the shuffled order: equivariant means that outputs move with their "
                "inputs, not that order has no effect (that is invariant)",
            ),
            Mistake(
                lambda y, order: y.flip(0),
                "this reverses the rows: it undoes a reversal, and no other shuffle",
            ),
        ),
    ),
)
