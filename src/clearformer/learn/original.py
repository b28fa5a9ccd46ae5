"""Exercises of chapter 10: cross-attention and teacher forcing."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from clearformer.learn.exercise import Case, Exercise, Mistake, draw


def cross_attention(
    x: Tensor, context: Tensor, to_queries: Tensor, to_keys: Tensor, to_values: Tensor
) -> Tensor:
    q, k, v = x @ to_queries.T, context @ to_keys.T, context @ to_values.T  # (B, T, D), (B, S, D)
    scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])  # (B, T, S)
    return scores.softmax(dim=-1) @ v  # (B, T, D)


def shift_right(targets: Tensor, start: int) -> Tensor:
    first = torch.full_like(targets[:, :1], start)  # (B, 1)
    return torch.cat((first, targets[:, :-1]), dim=1)  # (B, T)


def _pairs() -> list[Case]:
    # Of equal length in the second case, where a mix-up of the two keeps every shape.
    matrices = [2 * draw(4, 4, seed=seed) for seed in (1, 2, 3)]
    return [
        (draw(2, 3, 4), draw(2, 5, 4, seed=4), *matrices),
        (draw(2, 3, 4, seed=5), draw(2, 3, 4, seed=6), *matrices),
    ]


def _targets() -> list[Case]:
    return [(torch.tensor([[5, 6, 7, 1], [8, 9, 1, 1]]), 0), (torch.tensor([[4, 4, 2]]), 3)]


def _attended(q: Tensor, k: Tensor, v: Tensor, axis: int = -1) -> Tensor:
    return (q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])).softmax(dim=axis) @ v


EXERCISES = (
    Exercise(
        number="10.1",
        title="Cross-attention",
        task="x is (B, T, E), the decoder's vectors; context is (B, S, E), the encoder's. The "
        "matrices are (D, E), as in nn.Linear. Return (B, T, D): each vector of x looks at all of "
        "context, with one head and scaled scores.",
        answer=cross_attention,
        cases=_pairs,
        hints=(
            "Who asks, and who is asked? The decoder asks.",
            "Queries are made of x; keys and values of context.",
            "The table of scores is (B, T, S): a row for each vector of x. Softmax goes along S.",
        ),
        mistakes=(
            Mistake(
                lambda x, context, a, b, c: _attended(x @ a.T, x @ b.T, x @ c.T),
                "this is self-attention: context is not used. Keys and values come from context",
            ),
            Mistake(
                lambda x, context, a, b, c: _attended(context @ a.T, x @ b.T, x @ c.T),
                "the roles are exchanged: context asks x. Queries come from x, so that there is "
                "an output for each vector of x",
            ),
            Mistake(
                lambda x, context, a, b, c: _attended(context @ a.T, context @ b.T, context @ c.T),
                "everything is made of context: that is the encoder's self-attention. Queries "
                "come from x",
            ),
            Mistake(
                lambda x, context, a, b, c: (
                    (x @ a.T @ (context @ b.T).mT).softmax(-1) @ (context @ c.T)
                ),
                "the scale is missing: divide the scores by the root of D",
            ),
            Mistake(
                lambda x, context, a, b, c: _attended(x @ a.T, context @ b.T, context @ c.T, -2),
                "softmax goes along the vectors of x: the weights of one query must sum to 1 over "
                "context, dim=-1",
            ),
        ),
    ),
    Exercise(
        number="10.2",
        title="Teacher forcing: shift the target",
        task="targets is (B, T), the tokens that the decoder is to write. Return its input (B, T): "
        "start first, then the targets without their last token.",
        answer=shift_right,
        cases=_targets,
        hints=(
            "Place i of the input is what has been written before target i.",
            "Before the first target there is nothing but the start token.",
            "Concatenate a column of `start` and targets[:, :-1].",
        ),
        mistakes=(
            Mistake(
                lambda targets, start: targets.clone(),
                "nothing is shifted: at each place the decoder is given the very token that it is "
                "to predict, and learns to copy it",
            ),
            Mistake(
                lambda targets, start: torch.roll(targets, 1, dims=1),
                "the last token comes round to the front: there must be `start`. As it is, the "
                "first prediction sees how the sentence ends",
            ),
            Mistake(
                lambda targets, start: torch.cat(
                    (targets[:, 1:], torch.full_like(targets[:, :1], start)), dim=1
                ),
                "shifted to the left: each place is given the token after its target",
            ),
            Mistake(
                lambda targets, start: torch.cat(
                    (torch.full_like(targets[:, :1], start), targets), dim=1
                ),
                "the last token is still there, so the input is one longer than the targets: "
                "nothing is predicted from the last token",
            ),
        ),
    ),
)
