"""Statistics of an evaluation: macro F1, bootstrap intervals, thresholds, and paired tests.

Axes: C classes, S resamples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

RESAMPLES = 2000
MAX_DRAWS = 2_000_000  # rows in all resamples
LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A confidence interval."""

    low: float
    high: float

    def __str__(self) -> str:
        return self.shown()

    def shown(self, digits: str = ".4f") -> str:
        return f"{LEVEL:.0%} interval {self.low:{digits}} to {self.high:{digits}}"


def macro_f1(confusion: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean F1 of the classes that occur, as labels or as guesses: (..., C, C) to (...)."""
    right = np.diagonal(confusion, axis1=-2, axis2=-1).astype(np.float64)  # (..., C)
    either = confusion.sum(-1) + confusion.sum(-2)  # labels and guesses of each class
    f1 = 2 * right / np.maximum(either, 1)
    return f1.sum(-1) / np.maximum((either > 0).sum(-1), 1)


def bootstrap(confusion: NDArray[np.int64], seed: int = 0) -> dict[str, Interval]:
    """Percentile intervals of accuracy and macro F1 over resampled texts.

    Drawing texts with replacement is a multinomial draw of the cells of the confusion matrix.
    """
    total = int(confusion.sum())
    cells = confusion.reshape(-1) / total
    drawn = np.random.default_rng(seed).multinomial(total, cells, size=RESAMPLES)  # (S, C * C)
    matrices = drawn.reshape(RESAMPLES, *confusion.shape)
    accuracy = np.trace(matrices, axis1=1, axis2=2) / total
    return {"accuracy": _interval(accuracy), "macro_f1": _interval(macro_f1(matrices))}


def resampled(
    figures: Callable[[NDArray[np.int64]], Mapping[str, float]], total: int, seed: int = 0
) -> dict[str, Interval]:
    """Percentile intervals of figures that are computed from resampled rows.

    With many rows fewer resamples are drawn: they differ less, and each takes longer.
    """
    count = min(RESAMPLES, max(200, MAX_DRAWS // max(total, 1)))
    draw = np.random.default_rng(seed)
    drawn = [figures(draw.integers(0, total, total)) for _ in range(count)]
    columns = {name: np.array([each[name] for each in drawn]) for name in drawn[0]}
    finite = {name: values[np.isfinite(values)] for name, values in columns.items()}
    return {name: _interval(values) for name, values in finite.items() if len(values)}


def _interval(values: NDArray[np.float64]) -> Interval:
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return Interval(float(low), float(high))


@dataclass(frozen=True)
class Threshold:
    """The probability from which a class is accepted, and what that gives."""

    name: str
    probability: float | None  # None: no threshold reaches the goal
    precision: float = 0.0
    recall: float = 0.0


def thresholds(
    probabilities: Tensor,
    labels: Tensor,
    names: Sequence[str],
    *,
    precision: float | None = None,
    recall: float | None = None,
) -> list[Threshold]:
    """For each class, the threshold with at least this precision and the highest recall, or with
    at least this recall and the highest precision. Labels are classes (texts,), or 1 and 0 for each
    of several labels (texts, C)."""
    several = labels.dim() == 2
    found = []
    for index, name in enumerate(names):
        scores = probabilities[:, index].double().numpy()
        order = np.argsort(-scores, kind="stable")
        has = labels.numpy()[:, index] > 0 if several else labels.numpy() == index
        ordered, positive = scores[order], has[order]
        right = np.cumsum(positive)
        # Texts of the same probability are accepted together.
        last = np.append(ordered[1:] != ordered[:-1], True)
        precisions = (right / np.arange(1, len(order) + 1))[last]
        recalls = (right / max(int(positive.sum()), 1))[last]
        cuts = ordered[last]
        goal, reached = (recalls, precisions) if precision is not None else (precisions, recalls)
        wanted = precision if precision is not None else recall
        fits = np.flatnonzero((reached >= (wanted or 0.0)) & (recalls > 0))
        if not positive.any() or not len(fits):
            found.append(Threshold(name, None))
            continue
        best = fits[np.argmax(goal[fits])]
        found.append(
            Threshold(name, float(cuts[best]), float(precisions[best]), float(recalls[best]))
        )
    return found


@dataclass(frozen=True)
class PairedTest:
    """Two classifiers on the same texts.

    Attributes:
        first_only, second_only (int): Texts that one of the two gets right and the other does not.
        difference (float): Accuracy of the second minus that of the first.
        interval (Interval): Of the difference, by bootstrap.
        p_value (float): Of McNemar's exact test: how often two equally good classifiers would
            differ at least as much.
    """

    texts: int
    first_only: int
    second_only: int
    interval: Interval
    p_value: float

    @property
    def difference(self) -> float:
        return (self.second_only - self.first_only) / self.texts

    def lines(self) -> list[str]:
        sure = self.p_value < 0.05
        verdict = "a clear difference" if sure else "too small a difference to tell them apart"
        return [
            f"difference   {self.difference:+.4f} (second minus first), {self.interval}",
            f"             of {self.texts:,} texts {self.first_only:,} are right only in the "
            f"first, {self.second_only:,} only in the second",
            f"p value      {self.p_value:.4f} (McNemar's exact test): {verdict}",
        ]

    def document(self) -> dict[str, object]:
        only = {"first_only": self.first_only, "second_only": self.second_only}
        return {**_tested(self), **only}


def paired_test(first: Sequence[float], second: Sequence[float], seed: int = 0) -> PairedTest:
    """Compare which texts (1 right, 0 wrong) two classifiers get right."""
    one, other = np.asarray(first) > 0.5, np.asarray(second) > 0.5
    first_only, second_only = int((one & ~other).sum()), int((other & ~one).sum())
    total = len(one)
    cells = np.array([first_only, second_only, total - first_only - second_only]) / total
    drawn = np.random.default_rng(seed).multinomial(total, cells, size=RESAMPLES)
    interval = _interval((drawn[:, 1] - drawn[:, 0]) / total)
    return PairedTest(total, first_only, second_only, interval, _mcnemar(first_only, second_only))


@dataclass(frozen=True)
class PairedErrors:
    """The errors of two regression models on the same texts.

    Attributes:
        difference (float): Mean absolute error of the second minus that of the first.
        interval (Interval): Of the difference, by bootstrap.
        p_value (float): How often random exchanges of the two models' errors would make the
            difference at least as large.
    """

    texts: int
    difference: float
    interval: Interval
    p_value: float

    def lines(self) -> list[str]:
        sure = self.p_value < 0.05
        verdict = "a clear difference" if sure else "too small a difference to tell them apart"
        return [
            f"difference   {self.difference:+.6g} in the mean absolute error (second minus first), "
            f"{self.interval.shown('.6g')}",
            f"p value      {self.p_value:.4f} (paired permutation test): {verdict}",
        ]

    def document(self) -> dict[str, object]:
        return _tested(self)


def paired_errors(
    first: NDArray[np.float64], second: NDArray[np.float64], seed: int = 0
) -> PairedErrors:
    """Compare the absolute errors of two models on the same texts."""
    differences, draw = second - first, np.random.default_rng(seed)
    mean, total = float(differences.mean()), len(differences)
    found = resampled(lambda rows: {"mean": float(differences[rows].mean())}, total, seed)
    count = min(RESAMPLES, max(200, MAX_DRAWS // max(total, 1)))
    signs = (draw.choice((-1.0, 1.0), total) for _ in range(count))
    extreme = sum(abs(float((sign * differences).mean())) >= abs(mean) - 1e-12 for sign in signs)
    return PairedErrors(total, mean, found["mean"], (extreme + 1) / (count + 1))


def _tested(test: PairedTest | PairedErrors) -> dict[str, object]:
    interval = [test.interval.low, test.interval.high]
    return {"difference": test.difference, "interval": interval, "p_value": test.p_value}


def _mcnemar(one: int, other: int) -> float:
    """Two-sided binomial test of `one` against `other`, each as likely."""
    total = one + other
    if not total:
        return 1.0
    log_half = total * math.log(2)
    tail = sum(
        math.exp(
            math.lgamma(total + 1) - math.lgamma(k + 1) - math.lgamma(total - k + 1) - log_half
        )
        for k in range(min(one, other) + 1)
    )
    return min(1.0, 2 * tail)
