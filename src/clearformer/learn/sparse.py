"""Exercises of chapter 14: patterns, their reach, and attention for n sqrt(n)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from clearformer.learn.exercise import Case, Exercise, Mistake, draw


def strided_table(n: int, stride: int) -> Tensor:
    back = torch.arange(n)[:, None] - torch.arange(n)  # (n, n): query minus key
    return (back >= 0) & ((back < stride) | (back % stride == 0))


def reached(tables: Sequence[Tensor]) -> Tensor:
    itself = torch.eye(len(tables[0]), dtype=torch.bool)
    found = itself
    for table in tables:
        found = ((table | itself).double() @ found.double()) > 0
    return found  # (n, n): output i, input j


def fixed_attention(q: Tensor, k: Tensor, v: Tensor, stride: int) -> Tensor:
    blocks, width = len(q) // stride, q.shape[-1]
    q, k, v = (each.view(blocks, stride, width) for each in (q, k, v))  # (n/s, s, D)
    scale = math.sqrt(width)
    own = q @ k.transpose(1, 2) / scale  # (n/s, s, s)
    own = own.masked_fill(torch.ones(stride, stride).triu(1).bool(), -math.inf)
    summary = q @ k[:, -1].T / scale  # (n/s, s, n/s): the last token of each block
    later = torch.ones(blocks, blocks).triu().bool()[:, None]  # the own block, and those after
    both = torch.cat((own, summary.masked_fill(later, -math.inf)), dim=-1).softmax(dim=-1)
    y = both[..., :stride] @ v + both[..., stride:] @ v[:, -1]  # (n/s, s, D)
    return y.reshape(blocks * stride, width)


def _sizes() -> list[Case]:
    return [(9, 3), (10, 4)]


def _tables() -> list[Case]:
    chain = torch.eye(5).roll(-1, dims=0).bool()  # 0 sees 1, 1 sees 2, ... 4 sees 0
    jump = torch.zeros(5, 5, dtype=torch.bool)
    jump[2, 0] = jump[3, 2] = True
    return [((chain, jump),), ((jump, jump),), ((jump, chain, chain),)]


def _sequences() -> list[Case]:
    return [(*draw(3, 9, 4), 3), (*draw(3, 144, 4, seed=1), 12)]


def _limit(q: Tensor, k: Tensor, v: Tensor, stride: int) -> int:
    return 2 * len(q) * (stride + len(q) // stride)


def _masked(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, scale: float) -> Tensor:
    return (q @ k.T / scale).masked_fill(~seen, -math.inf).softmax(dim=-1) @ v


def _positions(q: Tensor) -> tuple[Tensor, Tensor]:
    return torch.arange(len(q))[:, None], torch.arange(len(q))[None]


def _fixed(q: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    """Own block and earlier summaries, as two tables."""
    i, j = _positions(q)
    own = (j <= i) & (i // stride == j // stride)
    return own, (j // stride < i // stride) & (j % stride == stride - 1)


def _dense(q: Tensor, k: Tensor, v: Tensor, stride: int, *, scaled: bool = True) -> Tensor:
    own, summary = _fixed(q, stride)
    return _masked(q, k, v, own | summary, math.sqrt(q.shape[-1]) if scaled else 1.0)


def _two_softmaxes(q: Tensor, k: Tensor, v: Tensor, stride: int) -> Tensor:
    own, summary = _fixed(q, stride)
    scale = math.sqrt(q.shape[-1])
    second = _masked(q, k, v, summary, scale).nan_to_num(0.0)
    return _masked(q, k, v, own, scale) + second


def _own_twice(q: Tensor, k: Tensor, v: Tensor, stride: int) -> Tensor:
    own, _ = _fixed(q, stride)
    i, j = _positions(q)
    scores = (q @ k.T / math.sqrt(q.shape[-1])).exp()
    weights = scores * own + scores * ((j // stride <= i // stride) & (j % stride == stride - 1))
    return weights / weights.sum(dim=-1, keepdim=True) @ v


def _whole_block(q: Tensor, k: Tensor, v: Tensor, stride: int) -> Tensor:
    i, j = _positions(q)
    _, summary = _fixed(q, stride)
    return _masked(q, k, v, (i // stride == j // stride) | summary, math.sqrt(q.shape[-1]))


EXERCISES = (
    Exercise(
        number="14.1",
        title="The strided pattern",
        task="Return a table of booleans (n, n), True where query i may look at key j: j is not "
        "after i, and i - j is below the stride or a multiple of it (eq. 24).",
        answer=strided_table,
        cases=_sizes,
        hints=(
            "Make the table of all differences i - j first.",
            "torch.arange(n)[:, None] - torch.arange(n) has the queries in rows.",
            "Not after: difference >= 0. Then & with (near | multiple), brackets included.",
        ),
        mistakes=(
            Mistake(
                lambda n, stride: (
                    ((d := torch.arange(n)[:, None] - torch.arange(n)).abs() < stride)
                    | (d % stride == 0)
                ),
                "it is not causal: some queries see keys after them",
            ),
            Mistake(
                lambda n, stride: (
                    ((d := torch.arange(n)[:, None] - torch.arange(n)) >= 0)
                    & (d < stride)
                    & (d % stride == 0)
                ),
                "both halves at once leave the diagonal only: near *or* a multiple",
            ),
            Mistake(
                lambda n, stride: (
                    ((d := torch.arange(n)[:, None] - torch.arange(n)) >= 0)
                    & ((d < stride) | (torch.arange(n) % stride == 0))
                ),
                "keys at multiples of the stride are seen by all: that is a fixed pattern. Here "
                "the *distance* is a multiple",
            ),
            Mistake(
                lambda n, stride: (
                    (
                        ((d := torch.arange(n)[:, None] - torch.arange(n)) >= 0)
                        & ((d <= stride) | (d % stride == 0))
                        & (d != 2 * stride)
                    )
                    | ((d >= 0) & (d < stride))
                ),
                "multiples beyond the first are missing: every stride-th token is seen, however "
                "far",
            ),
            Mistake(
                lambda n, stride: strided_table(n, stride).T,
                "rows and columns are exchanged: the rows are the queries",
            ),
        ),
    ),
    Exercise(
        number="14.2",
        title="What reaches what",
        task="tables holds a table of booleans (n, n) for each layer, the first layer first: True "
        "where an output looks at an input. With residual connections every output also keeps its "
        "own place. Return (n, n): True where input j can reach output i of the last layer.",
        answer=reached,
        cases=_tables,
        hints=(
            "After one layer: the table, and the diagonal.",
            "Going on by one layer: an output is reached by whatever reaches something it sees.",
            "That is a product of tables, (table | eye) @ found, and then > 0.",
        ),
        mistakes=(
            Mistake(
                lambda tables: torch.linalg.multi_dot([*[t.double() for t in tables[::-1]]]) > 0,
                "without the residual connections a place forgets itself: add the diagonal in each "
                "layer",
            ),
            Mistake(
                lambda tables: reached(tables[::-1]),
                "the layers are in reverse order: the product of the last layer's table comes "
                "first, from the left",
            ),
            Mistake(
                lambda tables: (
                    torch.stack(tuple(tables)).any(dim=0)
                    | torch.eye(len(tables[0]), dtype=torch.bool)
                ),
                "the tables are merged: that is one layer. Two steps need a product",
            ),
            Mistake(
                lambda tables: reached(tables).T,
                "rows and columns are exchanged: rows are the outputs",
            ),
        ),
    ),
    Exercise(
        number="14.3",
        title="Attention for n sqrt(n)",
        task="q, k and v are (n, D), and stride divides n. A query sees its own block of `stride` "
        "tokens up to itself, and the last token of each earlier block. Return (n, D), scaled, "
        "with one softmax for both kinds of keys, and never make a table of n x n: no tensor may "
        "have more than 2 n (stride + n / stride) elements.",
        answer=fixed_attention,
        cases=_sequences,
        hints=(
            "View q, k and v as (n / stride, stride, D): a block is then a batch.",
            "Two tables: (n/s, s, s) within blocks, and (n/s, s, n/s) with the last key of each "
            "block. Mask each: later tokens, and the own and later blocks.",
            "Concatenate both along the last axis, one softmax, cut again, and add the two "
            "products with their values.",
        ),
        mistakes=(
            Mistake(
                lambda q, k, v, stride: _masked(
                    q, k, v, _fixed(q, stride)[0], math.sqrt(q.shape[-1])
                ),
                "only the own block is seen: the last token of each earlier block is missing, and "
                "with it everything that is farther away",
            ),
            Mistake(
                _own_twice,
                "the last token of the own block is among the summaries: tokens before it see the "
                "future, and it counts twice. Summaries are those of earlier blocks",
            ),
            Mistake(
                _two_softmaxes,
                "each part has a softmax of its own, so that the weights of a query sum to 2: one "
                "softmax over both",
            ),
            Mistake(_whole_block, "within its block a query sees later tokens: mask them"),
            Mistake(
                lambda q, k, v, stride: _dense(q, k, v, stride, scaled=False),
                "the scale is missing: divide the scores by the root of D",
            ),
        ),
        largest=_limit,
    ),
)
