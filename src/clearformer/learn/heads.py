"""Exercises of chapter 4: heads (eq. 12)."""

from __future__ import annotations

from torch import Tensor

from clearformer.learn.exercise import Case, Exercise, Mistake, draw


def split_heads(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)  # (B, H, T, D)


def merge_heads(y: Tensor) -> Tensor:
    return y.transpose(1, 2).flatten(2)  # (B, T, H*D)


def parameters(width: int, heads: int, head_width: int) -> int:
    return 4 * width * heads * head_width


def _sequences() -> list[Case]:
    return [(draw(2, 5, 6), 3), (draw(1, 4, 8, seed=1), 2)]


def _outputs() -> list[Case]:
    return [(draw(2, 3, 5, 4),), (draw(1, 2, 4, 3, seed=1),)]


def _sizes() -> list[Case]:
    return [(256, 4, 64), (256, 4, 256), (96, 3, 20)]


EXERCISES = (
    Exercise(
        number="4.1",
        title="Cut the width into heads",
        task="x is (B, T, E). Return (B, H, T, D) with D = E / heads: head h owns the h-th slice "
        "of D neighbouring numbers of each vector.",
        answer=split_heads,
        cases=_sequences,
        hints=(
            "A view can split an axis in two, but cannot change the order of axes.",
            "Split E into (heads, D) first: (B, T, H, D).",
            "Then exchange the axes of tokens and heads.",
        ),
        mistakes=(
            Mistake(
                lambda x, heads: x.reshape(x.shape[0], heads, x.shape[1], -1),
                "the shape is right, the numbers are not: reshaping straight to (B, H, T, D) gives "
                "head 0 the first tokens instead of the first features. Split, then transpose",
            ),
            Mistake(
                lambda x, heads: x.unflatten(-1, (heads, -1)),
                "heads and tokens have not changed places: this is (B, T, H, D)",
            ),
            Mistake(
                lambda x, heads: x.unflatten(-1, (-1, heads)).permute(0, 3, 1, 2),
                "head h gets every H-th number: it must get neighbouring ones, as the matrices of "
                "the heads are stacked one below the other",
            ),
        ),
    ),
    Exercise(
        number="4.2",
        title="Put the heads together again",
        task="y is (B, H, T, D), the outputs of the heads. Return (B, T, H * D): for each token "
        "the outputs of all heads, one after the other.",
        answer=merge_heads,
        cases=_outputs,
        hints=(
            "It is exercise 4.1 backwards.",
            "The axes that become one must be neighbours: first transpose.",
            "A transposed tensor is not contiguous: use flatten or reshape, or contiguous() first.",
        ),
        mistakes=(
            Mistake(
                lambda y: y.reshape(y.shape[0], y.shape[2], -1),
                "the shape is right, the numbers are not: without the transpose a token gets "
                "numbers of other tokens",
            ),
            Mistake(
                lambda y: y.sum(dim=1),
                "the heads are added, which mixes their outputs. Concatenate them, as eq. 12",
            ),
            Mistake(
                lambda y: y.mean(dim=1),
                "the heads are averaged, which mixes their outputs. Concatenate them, as eq. 12",
            ),
            Mistake(
                lambda y: y.permute(0, 2, 3, 1).flatten(2),
                "the numbers of the heads are interleaved: those of one head must stay together",
            ),
        ),
    ),
    Exercise(
        number="4.3",
        title="Parameters: narrow and wide heads",
        task="Return the number of weights of multi-head attention, without biases: for each head "
        "three matrices from width to head_width, and W_o from all heads back to width.",
        answer=parameters,
        cases=_sizes,
        hints=(
            "One head's query matrix has width x head_width weights.",
            "There are three such matrices in each head.",
            "W_o has (heads * head_width) x width weights: as many as all the queries together.",
        ),
        mistakes=(
            Mistake(
                lambda width, heads, head_width: 3 * width * heads * head_width,
                "W_o is missing: it maps heads * head_width numbers back to width",
            ),
            Mistake(
                lambda width, heads, head_width: 4 * width * width,
                "that is right for narrow heads only, where heads * head_width is the width; the "
                "count must use head_width",
            ),
            Mistake(
                lambda width, heads, head_width: 4 * width * head_width,
                "that is one head: there are as many sets of matrices as heads",
            ),
            Mistake(
                lambda width, heads, head_width: 3 * width * heads * head_width + width * width,
                "the three projections are right, but W_o is not width x width when the heads are "
                "wide: its input is heads * head_width",
            ),
        ),
    ),
)
