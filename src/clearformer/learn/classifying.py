"""Exercises of chapter 6: from a sequence of vectors to a class (eq. 27)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.learn.exercise import Case, Exercise, Mistake, draw


def mean_pool(hidden: Tensor, real: Tensor) -> Tensor:
    kept = real[:, :, None].to(hidden.dtype)  # (B, T, 1)
    return (hidden * kept).sum(dim=1) / kept.sum(dim=1)  # (B, E)


def max_pool(hidden: Tensor, real: Tensor) -> Tensor:
    return hidden.masked_fill(~real[:, :, None], float("-inf")).amax(dim=1)  # (B, E)


def log_probabilities(pooled: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.log_softmax(pooled @ weight.T + bias, dim=-1)  # (B, C)


def _padded() -> list[Case]:
    real = torch.tensor([[True] * 5, [True] * 3 + [False] * 2, [True] + [False] * 4])
    return [(draw(3, 5, 4), real), (draw(3, 5, 6, seed=1) - 2, real)]


def _pooled() -> list[Case]:
    return [(draw(4, 6), draw(3, 6, seed=1), draw(3, seed=2)),
            (50 * draw(2, 5, seed=3), draw(2, 5, seed=4), draw(2, seed=5))]  # fmt: skip


EXERCISES = (
    Exercise(
        number="6.1",
        title="Global average pooling, with padding",
        task="hidden is (B, T, E), real is (B, T) and True at real tokens, False at padding; every "
        "sequence has a real token. Return the average of each sequence's real tokens (B, E).",
        answer=mean_pool,
        cases=_padded,
        hints=(
            "An average is a sum and a number: both must leave the padding out.",
            "Multiply by real as numbers; real[:, :, None] broadcasts over the width.",
            "Divide by the number of real tokens of each sequence, not by T.",
        ),
        mistakes=(
            Mistake(
                lambda hidden, real: hidden.mean(dim=1),
                "padding takes part in the average: a review is judged differently when a longer "
                "one is in its batch",
            ),
            Mistake(
                lambda hidden, real: (hidden * real[:, :, None]).mean(dim=1),
                "padding is set to zero, but still counted: the sum is divided by T, so short "
                "sequences come out too small",
            ),
            Mistake(
                lambda hidden, real: (hidden * real[:, :, None]).sum(dim=1),
                "this is the sum: without the division long sequences give large vectors",
            ),
            Mistake(
                lambda hidden, real: (hidden * real[:, :, None]).sum(dim=1) / real.sum(),
                "divided by the real tokens of the whole batch: each sequence has its own number",
            ),
            Mistake(
                lambda hidden, real: hidden.mean(dim=2),
                "averaged over the width: the tokens are dim=1, and the result is (B, E)",
            ),
        ),
    ),
    Exercise(
        number="6.2",
        title="Global max pooling, with padding",
        task="The same for the maximum: of each of the E numbers the largest among a sequence's "
        "real tokens, (B, E).",
        answer=max_pool,
        cases=_padded,
        hints=(
            "Give padding a value that no maximum can take.",
            "Zero is not such a value: all real numbers of a column may be negative.",
            "masked_fill with -inf, then amax over the tokens.",
        ),
        mistakes=(
            Mistake(
                lambda hidden, real: hidden.amax(dim=1),
                "padding takes part in the maximum: whatever it holds can win",
            ),
            Mistake(
                lambda hidden, real: (hidden * real[:, :, None]).amax(dim=1),
                "padding is zero, and zero wins where every real number is negative: fill it with "
                "-inf",
            ),
            Mistake(
                lambda hidden, real: hidden.masked_fill(~real[:, :, None], float("-inf")).argmax(1),
                "this is where the maximum stands, not the maximum: argmax has no gradient either",
            ),
            Mistake(
                lambda hidden, real: hidden.masked_fill(~real[:, :, None], float("-inf")).amax(2),
                "the maximum is taken over the width: the tokens are dim=1, the result is (B, E)",
            ),
        ),
    ),
    Exercise(
        number="6.3",
        title="Eq. 27: class probabilities",
        task="pooled is (B, E), weight is (C, E) as in nn.Linear, bias is (C,). Return the "
        "log-probabilities of the classes (B, C), as the post's classifier does. Logits may be in "
        "the hundreds.",
        answer=log_probabilities,
        cases=_pooled,
        hints=(
            "A linear layer, then softmax over the classes, then the logarithm.",
            "The classes are the last axis.",
            "log(softmax(x)) underflows for large logits: torch.log_softmax does both at once.",
        ),
        mistakes=(
            Mistake(
                lambda pooled, weight, bias: (pooled @ weight.T + bias).softmax(dim=-1),
                "these are probabilities: the logarithm is missing, and F.nll_loss wants it",
            ),
            Mistake(
                lambda pooled, weight, bias: pooled @ weight.T + bias,
                "these are logits: softmax and logarithm are missing",
            ),
            Mistake(
                lambda pooled, weight, bias: (pooled @ weight.T + bias).softmax(dim=-1).log(),
                "right in theory, but an unlikely class underflows to probability 0, and its "
                "logarithm is -inf: use log_softmax",
            ),
            Mistake(
                lambda pooled, weight, bias: (pooled @ weight.T + bias).log_softmax(dim=0),
                "softmax runs over the batch: the probabilities of one text must sum to one",
            ),
            Mistake(
                lambda pooled, weight, bias: F.log_softmax(pooled @ weight.T, dim=-1),
                "the bias is missing: a class that is frequent should start ahead",
            ),
        ),
    ),
)
