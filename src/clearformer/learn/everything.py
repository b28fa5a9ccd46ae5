"""Exercises of chapter 16: relations as tables, and heads with a table each."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from clearformer.learn.exercise import Case, Exercise, Mistake, draw

Edges = Sequence[tuple[int, int]]


def relation_table(edges: Edges, nodes: int) -> Tensor:
    table = torch.eye(nodes, dtype=torch.bool)
    for i, j in edges:
        table[i, j] = True
    return table


def typed_attention(q: Tensor, k: Tensor, v: Tensor, tables: Tensor) -> Tensor:
    scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])  # (H, T, T)
    empty = ~tables.any(dim=-1, keepdim=True)  # (H, T, 1)
    scores = scores.masked_fill(~tables, -math.inf).masked_fill(empty, 0.0)
    return scores.softmax(dim=-1).masked_fill(empty, 0.0) @ v  # (H, T, D)


def _graphs() -> list[Case]:
    return [([(0, 2), (2, 1), (3, 0)], 4), ([(1, 0), (1, 2), (4, 3)], 5)]


def _heads() -> list[Case]:
    tables = torch.tensor(
        [
            [[1, 1, 0], [0, 1, 0], [0, 0, 0]],
            [[1, 0, 1], [1, 0, 1], [0, 0, 1]],
        ],
        dtype=torch.bool,
    )
    return [(*draw(3, 2, 3, 4), tables), (*(2 * draw(3, 2, 3, 4, seed=1)), tables.flip(0))]


def _filled(edges: Edges, nodes: int) -> Tensor:
    table = torch.zeros(nodes, nodes, dtype=torch.bool)
    for i, j in edges:
        table[i, j] = True
    return table


def _scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])


EXERCISES = (
    Exercise(
        number="16.1",
        title="A relation as a table",
        task="edges is a list of pairs (i, j): node i looks at node j. Return a table of booleans "
        "(nodes, nodes), True for each edge; every node also looks at itself.",
        answer=relation_table,
        cases=_graphs,
        hints=(
            "Start from the diagonal: torch.eye(nodes, dtype=torch.bool).",
            "Rows are those who look, columns those who are looked at.",
            "Edges are directed: (0, 2) does not mean that 2 looks at 0.",
        ),
        mistakes=(
            Mistake(
                _filled,
                "nodes do not see themselves: a node without edges would see nothing. Add the "
                "diagonal",
            ),
            Mistake(
                lambda edges, nodes: relation_table(edges, nodes).T,
                "rows and columns are exchanged: information would flow against the edges",
            ),
            Mistake(
                lambda edges, nodes: relation_table(edges, nodes) | relation_table(edges, nodes).T,
                "every edge goes both ways: relations are directed, and a teacher is no pupil",
            ),
            Mistake(
                lambda edges, nodes: ~relation_table(edges, nodes),
                "the table is inverted: True means that one may look",
            ),
        ),
    ),
    Exercise(
        number="16.2",
        title="Heads with relations of their own",
        task="q, k and v are (H, T, D), tables is (H, T, T): True where a query of that head may "
        "look at a key. Return (H, T, D), scaled; a query that sees nothing gives zeros, not NaN.",
        answer=typed_attention,
        cases=_heads,
        hints=(
            "Where the table is False, the score is -inf before the softmax.",
            "A row of nothing but -inf has a softmax of NaN: handle these rows apart.",
            "empty = ~tables.any(dim=-1, keepdim=True); give such rows any scores, and zero their "
            "weights afterwards.",
        ),
        mistakes=(
            Mistake(
                lambda q, k, v, tables: (
                    _scores(q, k).masked_fill(~tables, -math.inf).softmax(dim=-1) @ v
                ),
                "a query that sees nothing gives NaN: 0/0 in the softmax. Set its weights to zero",
            ),
            Mistake(
                lambda q, k, v, tables: (
                    _scores(q, k).masked_fill(~tables.any(dim=0), -math.inf).softmax(dim=-1) @ v
                ),
                "all heads use all relations: then no head can tell them apart. Each has its own "
                "table",
            ),
            Mistake(
                lambda q, k, v, tables: (_scores(q, k).softmax(dim=-1) * tables) @ v,
                "masked after the softmax: the weights of a query no longer sum to 1, and what is "
                "hidden still decides how much",
            ),
            Mistake(
                lambda q, k, v, tables: (_scores(q, k) * tables).softmax(dim=-1) @ v,
                "hidden scores are set to 0, not to -inf: exp(0) = 1, so they still count",
            ),
            Mistake(
                lambda q, k, v, tables: (
                    _scores(q, k).masked_fill(~tables, -1e9).softmax(dim=-1) @ v
                ),
                "a query that sees nothing looks at everything: with equal scores of -1e9 the "
                "softmax is uniform. Its weights must be zero",
            ),
        ),
    ),
)
