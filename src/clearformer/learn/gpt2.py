"""Exercises of chapter 12: pre-norm, byte pairs, and GPT-2's size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from clearformer.learn.exercise import Case, Exercise, Mistake, draw

Part = Callable[[Tensor], Tensor]


def gpt2_block(x: Tensor, attention: Part, feed_forward: Part, norm1: Part, norm2: Part) -> Tensor:
    x = x + attention(norm1(x))
    return x + feed_forward(norm2(x))  # (B, T, E)


def merge(tokens: Sequence[int], first: int, second: int, new: int) -> list[int]:
    found: list[int] = []
    place = 0
    while place < len(tokens):
        if tuple(tokens[place : place + 2]) == (first, second):
            found.append(new)
            place += 2
        else:
            found.append(tokens[place])
            place += 1
    return found


def gpt2_parameters(layers: int, width: int, vocabulary: int, length: int) -> int:
    norm = 2 * width
    attention = width * 3 * width + 3 * width + width * width + width
    feed_forward = width * 4 * width + 4 * width + 4 * width * width + width
    block = norm + attention + norm + feed_forward
    return (vocabulary + length) * width + layers * block + norm


def _parts() -> list[Case]:
    def centre(x: Tensor) -> Tensor:
        return x - x.mean(dim=-1, keepdim=True)

    def scale(x: Tensor) -> Tensor:
        return x / (x.square().mean(dim=-1, keepdim=True) + 0.1).sqrt()

    def mix(x: Tensor) -> Tensor:
        return x.cumsum(dim=1)

    return [(draw(2, 4, 6), mix, torch.tanh, scale, centre)]


def _lines() -> list[Case]:
    return [
        ([1, 2, 3, 1, 2, 1], 1, 2, 9),
        ([1, 1, 1, 2, 1, 1, 1, 1], 1, 1, 9),
        ([2, 1, 2], 1, 2, 9),
        ([3, 2, 1], 1, 2, 9),
    ]


def _sizes() -> list[Case]:
    return [(12, 768, 50_257, 1024), (48, 1600, 50_257, 1024), (2, 32, 300, 64)]


def _overlapping(tokens: Sequence[int], first: int, second: int, new: int) -> list[int]:
    pairs = [(a, b) == (first, second) for a, b in pairwise(tokens)]
    starts = [*pairs, False]
    return [
        new if starts[place] else token
        for place, token in enumerate(tokens)
        if starts[place] or not (place and starts[place - 1])
    ]


def _either_order(tokens: Sequence[int], first: int, second: int, new: int) -> list[int]:
    found: list[int] = []
    place = 0
    while place < len(tokens):
        if sorted(tokens[place : place + 2]) == sorted((first, second)):
            found.append(new)
            place += 2
        else:
            found.append(tokens[place])
            place += 1
    return found


def _first_only(tokens: Sequence[int], first: int, second: int, new: int) -> list[int]:
    for place in range(len(tokens) - 1):
        if tuple(tokens[place : place + 2]) == (first, second):
            return [*tokens[:place], new, *tokens[place + 2 :]]
    return list(tokens)


def _weights(layers: int, width: int) -> int:
    return layers * 12 * width * width


EXERCISES = (
    Exercise(
        number="12.1",
        title="GPT-2's block",
        task="Put a pre-norm block together (eq. 15) from four functions of a tensor: each part is "
        "given a normalized copy, and its output is added to what came in.",
        answer=gpt2_block,
        cases=_parts,
        hints=(
            "The sum itself is never normalized: norm only what a part is given.",
            "First line: x plus attention of norm1(x).",
            "Second line: the same with feed_forward and norm2, from the new x.",
        ),
        mistakes=(
            Mistake(
                lambda x, attention, feed_forward, norm1, norm2: norm2(
                    feed_forward(h := norm1(attention(x) + x)) + h
                ),
                "this is post-norm (eq. 14), the post's block: GPT-2 normalizes what goes into a "
                "part, not the sum",
            ),
            Mistake(
                lambda x, attention, feed_forward, norm1, norm2: (
                    (h := (n := norm1(x)) + attention(n)) - h + (m := norm2(h)) + feed_forward(m)
                ),
                "the normalized copy is what is added to: then every block normalizes the stream. "
                "Add to x itself",
            ),
            Mistake(
                lambda x, attention, feed_forward, norm1, norm2: (
                    (h := x + attention(norm1(x))) + feed_forward(h)
                ),
                "norm2 is missing: feed_forward is given the bare sum",
            ),
            Mistake(
                lambda x, attention, feed_forward, norm1, norm2: (
                    x + attention(norm1(x)) + feed_forward(norm2(x))
                ),
                "both parts start from the input of the block, side by side (as in GPT-J): in "
                "GPT-2 feed_forward comes after attention",
            ),
            Mistake(
                lambda x, attention, feed_forward, norm1, norm2: (
                    (h := x + norm1(attention(x))) + norm2(feed_forward(h))
                ),
                "the norms stand behind the parts: they belong in front",
            ),
        ),
    ),
    Exercise(
        number="12.2",
        title="One merge of byte-pair encoding",
        task="tokens is a list of ids. From left to right, replace each `first` that is followed "
        "by `second` with `new`, and return the new list. A token can be part of one pair only.",
        answer=merge,
        cases=_lines,
        hints=(
            "Walk with an index; a pair takes two steps, any other token one.",
            "With [1, 1, 1] and the pair (1, 1) the result is [new, 1].",
            "Mind the last token: it has no right neighbour.",
        ),
        mistakes=(
            Mistake(
                _overlapping,
                "overlapping pairs are both merged: in 1 1 1 the middle token belongs to the first "
                "pair. After a merge go on behind it",
            ),
            Mistake(_first_only, "only the first pair is merged: go on to the end of the list"),
            Mistake(
                _either_order,
                "the pair counts in either order: (2, 1) is another pair than (1, 2)",
            ),
            Mistake(
                lambda tokens, first, second, new: [
                    new if each in (first, second) else each for each in tokens
                ],
                "single tokens are replaced: only neighbours that form the pair are merged",
            ),
        ),
    ),
    Exercise(
        number="12.3",
        title="How large is GPT-2?",
        task="Return the number of weights: tables for tokens and positions; in each block two "
        "layer norms, q, k, v and output projections, and a hidden layer of 4 * width, all with "
        "biases; one norm at the end. The last layer is the token table again and counts once.",
        answer=gpt2_parameters,
        cases=_sizes,
        hints=(
            "A block has 12 * width² weights in matrices: 4 in attention, 8 in the hidden layer.",
            "Biases of a block: 3w + w + 4w + w; its two norms have 2w each.",
            "Tables: (vocabulary + length) * width. The last norm: 2 * width.",
        ),
        mistakes=(
            Mistake(
                lambda layers, width, vocabulary, length: (
                    gpt2_parameters(layers, width, vocabulary, length) + vocabulary * width
                ),
                "the token table counts twice: the last layer shares it",
            ),
            Mistake(
                lambda layers, width, vocabulary, length: (
                    _weights(layers, width) + (vocabulary + length) * width
                ),
                "matrices and tables only: biases and norms are missing",
            ),
            Mistake(
                lambda layers, width, vocabulary, length: (
                    gpt2_parameters(layers, width, vocabulary, length) - 2 * width
                ),
                "the norm at the end is missing: a pre-norm stack ends on a bare sum",
            ),
            Mistake(
                lambda layers, width, vocabulary, length: (
                    gpt2_parameters(layers, width, vocabulary, length) - length * width
                ),
                "the table of positions is missing",
            ),
            Mistake(
                lambda layers, width, vocabulary, length: (
                    gpt2_parameters(layers, width, vocabulary, length) - layers * 9 * width
                ),
                "biases are missing: 9 * width of them in each block",
            ),
        ),
    ),
)
