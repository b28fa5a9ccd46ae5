"""Exercises of chapter 13: attention with a memory, and scores by distance."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from clearformer.learn.exercise import Case, Exercise, Mistake, draw


def attend_with_memory(
    x: Tensor, memory: Tensor, to_queries: Tensor, to_keys: Tensor, to_values: Tensor
) -> Tensor:
    both = torch.cat((memory.detach(), x))  # (M + T, E)
    q, k, v = x @ to_queries.T, both @ to_keys.T, both @ to_values.T
    scores = q @ k.T / math.sqrt(q.shape[-1])  # (T, M + T)
    seen = torch.ones_like(scores, dtype=torch.bool).tril(diagonal=len(memory))
    return scores.masked_fill(~seen, -math.inf).softmax(dim=-1) @ v  # (T, D)


def by_key(by_distance: Tensor, keys: int) -> Tensor:
    queries = len(by_distance)
    i, j = torch.arange(queries)[:, None], torch.arange(keys)[None]
    return by_distance.gather(1, queries - 1 - i + j)  # (Q, K)


def _segments() -> list[Case]:
    matrices = [draw(4, 4, seed=seed) for seed in (1, 2, 3)]
    return [
        (draw(3, 4), draw(5, 4, seed=4), *matrices),
        (draw(4, 4, seed=5), draw(4, 4, seed=6), *matrices),
    ]


def _distances() -> list[Case]:
    return [(draw(3, 7), 5), (draw(4, 7, seed=1), 4)]


def _attended(
    x: Tensor, both: Tensor, matrices: tuple[Tensor, ...], diagonal: int | None
) -> Tensor:
    q, k, v = x @ matrices[0].T, both @ matrices[1].T, both @ matrices[2].T
    scores = q @ k.T / math.sqrt(q.shape[-1])
    if diagonal is not None:
        seen = torch.ones_like(scores, dtype=torch.bool).tril(diagonal)
        scores = scores.masked_fill(~seen, -math.inf)
    return scores.softmax(dim=-1) @ v


EXERCISES = (
    Exercise(
        number="13.1",
        title="Attention with a memory",
        task="x is (T, E), the current segment; memory is (M, E), the hidden states before it. "
        "Return (T, D): causal attention with one head, scaled, over memory and x. Queries come "
        "from x only, and no gradient may reach the memory. Matrices are (D, E).",
        answer=attend_with_memory,
        cases=_segments,
        hints=(
            "Keys and values are made of the memory and x, one behind the other.",
            "Query i stands at place M + i of the keys: all of the memory is visible to it.",
            "torch.tril with diagonal=M gives the mask; memory.detach() stops the gradient.",
        ),
        mistakes=(
            Mistake(
                lambda x, memory, *matrices: _attended(x, x, matrices, 0),
                "the memory is not used: keys and values must be made of it, too",
            ),
            Mistake(
                lambda x, memory, *matrices: _attended(x, torch.cat((memory, x)), matrices, 0),
                "the mask is aligned at the first key: query i stands at place M + i, so the "
                "triangle begins at diagonal=M",
            ),
            Mistake(
                lambda x, memory, *matrices: _attended(x, torch.cat((memory, x)), matrices, None),
                "there is no mask: within the segment a token sees later ones",
            ),
            Mistake(
                lambda x, memory, *matrices: _attended(
                    torch.cat((memory, x)), torch.cat((memory, x)), matrices, 0
                ),
                "queries are made of the memory, too: that computes the previous segment again. "
                "There must be T outputs",
            ),
            Mistake(
                lambda x, memory, *matrices: _attended(
                    x, torch.cat((x, memory)), matrices, len(memory)
                ),
                "the memory stands behind the segment: it comes first, as it is older",
            ),
        ),
    ),
    Exercise(
        number="13.2",
        title="From distances to keys",
        task="by_distance is (Q, K + Q - 1): in each row the scores of the distances K - 1, K - 2, "
        "... 0, -1, ... 1 - Q. The queries are the last Q of the K positions. Return (Q, K): "
        "entry (i, j) is the score of the distance from query i to key j.",
        answer=by_key,
        cases=_distances,
        hints=(
            "Query i stands at position K - Q + i, so the distance to key j is K - Q + i - j.",
            "Column c holds the distance K - 1 - c: solve for c.",
            "c = Q - 1 - i + j: one gather, or a shift of each row by one place more than the row "
            "below.",
        ),
        mistakes=(
            Mistake(
                lambda by_distance, keys: by_distance[:, :keys],
                "no row is shifted: every query would have the distances of the last one",
            ),
            Mistake(
                lambda by_distance, keys: by_distance[:, -keys:],
                "every row has the distances of the first query: each later query is one farther "
                "from each key",
            ),
            Mistake(
                lambda by_distance, keys: by_distance.gather(
                    1, torch.arange(len(by_distance))[:, None] + torch.arange(keys)
                ),
                "the rows are shifted the wrong way: a later query is farther from a key, so its "
                "row starts earlier",
            ),
            Mistake(
                lambda by_distance, keys: by_key(by_distance, keys).flip(1),
                "the keys are in reverse order: the first key is the farthest",
            ),
        ),
    ),
)
