"""Exercises of chapter 3: queries, keys, values and the scale (eq. 4, eq. 6 to eq. 9)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from clearformer.learn.exercise import Case, Exercise, Mistake, draw


def scores(x: Tensor, to_queries: Tensor, to_keys: Tensor) -> Tensor:
    queries = x @ to_queries.T  # (B, T, E)
    keys = x @ to_keys.T  # (B, T, E)
    return queries @ keys.transpose(-2, -1)  # (B, T, T)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    raw = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, Q, K)
    return raw.softmax(dim=-1) @ v  # (B, Q, D)


def softmax_gradient(raw: Tensor) -> Tensor:
    w = raw.softmax(dim=0)  # (K,)
    return torch.diag(w) - w[:, None] * w[None, :]  # (K, K)


def _projections() -> list[Case]:
    return [(draw(2, 5, 4), draw(4, 4, seed=1), draw(4, 4, seed=2))]


def _parts() -> list[Case]:
    return [
        (2 * draw(2, 3, 9), draw(2, 5, 9, seed=1), draw(2, 5, 9, seed=2)),
        (draw(1, 4, 16), draw(1, 7, 16, seed=1), draw(1, 7, 16, seed=2)),
    ]


def _rows() -> list[Case]:
    return [(draw(4),), (3 * draw(6, seed=1),)]


def _weights(q: Tensor, k: Tensor, divisor: float) -> Tensor:
    return (q @ k.transpose(-2, -1) / divisor).softmax(dim=-1)


EXERCISES = (
    Exercise(
        number="3.1",
        title="Eq. 4 and 6: queries and keys",
        task="x is (B, T, E); to_queries and to_keys are E x E and act on column vectors, as in "
        "eq. 4: q_i = W_q x_i. Return the scores q_i . k_j (B, T, T), unscaled.",
        answer=scores,
        cases=_projections,
        hints=(
            "In the equation x_i is a column; in the tensor it is a row.",
            "(W x)^T = x^T W^T.",
            "x @ to_queries.T are the queries, one in each row.",
        ),
        mistakes=(
            Mistake(
                lambda x, to_queries, to_keys: (x @ to_queries) @ (x @ to_keys).transpose(-2, -1),
                "the matrices are not transposed: rows of x times W is W^T x. nn.Linear transposes "
                "for you, @ does not",
            ),
            Mistake(
                lambda x, to_queries, to_keys: (
                    (x @ to_keys.T) @ (x @ to_queries.T).transpose(-2, -1)
                ),
                "queries and keys have changed places: row i must belong to query i",
            ),
            Mistake(
                lambda x, to_queries, to_keys: (x @ to_queries.T) @ x.transpose(-2, -1),
                "the queries are compared with the inputs, not with keys: the second seed's eq. 9 "
                "prints that too (docs/errata.md, 3)",
            ),
            Mistake(
                lambda x, to_queries, to_keys: (
                    (x @ to_queries.T) @ (x @ to_keys.T).transpose(-2, -1) / x.shape[-1] ** 0.5
                ),
                "these are scaled: eq. 6 has no scale yet, that is exercise 3.2",
            ),
        ),
    ),
    Exercise(
        number="3.2",
        title="Eq. 7 to 9: scaled dot-product attention",
        task="q is (B, Q, D), k and v are (B, K, D). Return the attention outputs (B, Q, D) with "
        "the scale of eq. 9.",
        answer=attention,
        cases=_parts,
        hints=(
            "Scores, scale, softmax, values: in this order.",
            "D is the number of terms of each dot product; the scale is its square root.",
            "softmax along the keys, the last axis, then @ v.",
        ),
        mistakes=(
            Mistake(
                lambda q, k, v: _weights(q, k, 1.0) @ v,
                "the scale is missing: divide the scores by the root of the width D",
            ),
            Mistake(
                lambda q, k, v: _weights(q, k, q.shape[-1]) @ v,
                "divided by D: the scores' standard deviation grows with the root of D, so "
                "divide by that",
            ),
            Mistake(
                lambda q, k, v: _weights(q, k, math.sqrt(k.shape[-2])) @ v,
                "divided by the root of the number of keys: what makes dot products large is the "
                "width D, not the length",
            ),
            Mistake(
                lambda q, k, v: _weights(q, k, math.sqrt(q.shape[1])) @ v,
                "divided by the root of the number of queries: axis 1 of q is its length, and "
                "what makes dot products large is the width D, its last axis",
            ),
            Mistake(
                lambda q, k, v: _weights(q, k, 1.0) / math.sqrt(q.shape[-1]) @ v,
                "scaled after the softmax: the weights no longer sum to one, and softmax still "
                "saturates. Scale the scores before",
            ),
            Mistake(
                lambda q, k, v: (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(1) @ v,
                "softmax along the queries: each query's weights over the keys must sum to one",
            ),
        ),
    ),
    Exercise(
        number="3.3",
        title="The gradient of softmax",
        task="raw is one row of scores (K,). Return the matrix (K, K) of derivatives of its "
        "softmax: entry i, j is the derivative of weight i by score j. No autograd; what is it "
        "when one weight is nearly one?",
        answer=softmax_gradient,
        cases=_rows,
        hints=(
            "Use the quotient rule on exp(s_i) / sum(exp(s)), once for i = j and once for i != j.",
            "For i = j it is w_i (1 - w_i), for i != j it is -w_i w_j.",
            "Both at once: torch.diag(w) minus the outer product of w with itself.",
        ),
        mistakes=(
            Mistake(
                lambda raw: torch.diag(raw.softmax(0) * (1 - raw.softmax(0))),
                "that is right on the diagonal: the other entries are not zero, since weights "
                "share one, and when one grows the others shrink",
            ),
            Mistake(
                lambda raw: torch.diag(raw.softmax(0)),
                "that is the derivative of the numerator alone: the sum in the denominator depends "
                "on every score too",
            ),
            Mistake(
                lambda raw: torch.outer(raw.softmax(0), raw.softmax(0)) - raw.softmax(0).diag(),
                "the sign is wrong: a larger score gives its own weight more, not less",
            ),
            Mistake(
                lambda raw: raw.softmax(0) * (1 - raw.softmax(0)),
                "these are the K derivatives of each weight by its own score; a softmax has K x K, "
                "one for each pair",
            ),
        ),
    ),
)
