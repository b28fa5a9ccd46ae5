"""Baselines: TF-IDF with logistic or ridge regression of scikit-learn, on the same split."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clearformer.data import LABEL_SETS, Table
from clearformer.data.label_forms import labels_of
from clearformer.tasks.class_statistics import macro_f1
from clearformer.tasks.multi_label_report import report
from clearformer.tasks.regression_report import figures

MAX_BYTES = 20_000_000  # of training text; more would take minutes


@dataclass(frozen=True)
class Baseline:
    """What a line of scikit-learn reaches."""

    accuracy: float
    macro_f1: float
    texts: int

    def __str__(self) -> str:
        return (
            f"TF-IDF and logistic regression (scikit-learn) reach accuracy {self.accuracy:.4f}, "
            f"macro F1 {self.macro_f1:.4f} on the same {self.texts:,} validation texts"
        )


def baseline(training: Table, validation: Table) -> Baseline | None:
    """Fit and measure it; None without scikit-learn, or if there is too much or nothing to fit."""
    if not training.labels or not validation.labels:
        return None
    guesses = _fitted(training, validation, list(training.labels), _logistic)
    if guesses is None:
        return None
    names = sorted({*training.labels, *validation.labels})
    numbers = {name: i for i, name in enumerate(names)}
    confusion = np.zeros((len(names), len(names)), dtype=np.int64)
    for label, guess in zip(validation.labels, guesses, strict=True):
        confusion[numbers[label], numbers[str(guess)]] += 1
    total = int(confusion.sum())
    return Baseline(float(np.trace(confusion) / total), float(macro_f1(confusion)), total)


@dataclass(frozen=True)
class LabelSetsBaseline:
    """What one logistic regression for each label reaches."""

    metrics: dict[str, float]
    texts: int

    def __str__(self) -> str:
        found = self.metrics
        return (
            f"TF-IDF and a logistic regression for each label (scikit-learn) reach micro F1 "
            f"{found['micro_f1']:.4f}, macro F1 {found['macro_f1']:.4f}, all labels right "
            f"{found['subset_accuracy']:.4f} on the same {self.texts:,} validation texts"
        )


def label_sets_baseline(training: Table, validation: Table) -> LabelSetsBaseline | None:
    """One-vs-rest on the labels of `data.LABEL_SETS`; None as for `baseline`."""
    names = tuple(LABEL_SETS.names((*(training.labels or ()), *(validation.labels or ()))))

    def table(rows: Table) -> NDArray[np.int64]:
        sets = [labels_of(each) for each in rows.labels or ()]
        return np.array([[name in labels for name in names] for labels in sets], dtype=np.int64)

    wanted = table(training)
    learned = np.flatnonzero(wanted.min(0) != wanted.max(0))  # one value alone cannot be fitted
    if not len(learned):
        return None
    guesses = _fitted(
        training,
        validation,
        wanted[:, learned],
        _one_vs_rest,
    )
    if guesses is None:
        return None
    labels = table(validation)
    outputs = np.tile(wanted.min(0), (len(labels), 1)).astype(np.float32)
    outputs[:, learned] = guesses
    found = report(torch.from_numpy(outputs), torch.from_numpy(labels), names)
    return LabelSetsBaseline(found.metrics, len(labels))


@dataclass(frozen=True)
class NumbersBaseline:
    """What a ridge regression reaches."""

    metrics: dict[str, float]
    texts: int

    def __str__(self) -> str:
        found = self.metrics
        return (
            f"TF-IDF and ridge regression (scikit-learn) reach RMSE {found['rmse']:.6g}, MAE "
            f"{found['mae']:.6g}, R2 {found['r2']:.4f}, Spearman {found['spearman']:.4f} on the "
            f"same {self.texts:,} validation texts"
        )


def numbers_baseline(training: Table, validation: Table) -> NumbersBaseline | None:
    """Ridge regression on the numbers of `data.NUMBERS`; None as for `baseline`."""
    wanted, labels = (
        np.array([float(each) for each in table.labels or ()]) for table in (training, validation)
    )
    guesses = _fitted(training, validation, wanted, lambda sk: sk.Ridge(alpha=1.0))
    if guesses is None:
        return None
    return NumbersBaseline(figures(np.asarray(guesses, dtype=np.float64), labels), len(labels))


AnyBaseline = Baseline | LabelSetsBaseline | NumbersBaseline


def _fitted(
    training: Table, validation: Table, labels: Any, estimator: Callable[[Any], Any]
) -> Any:
    """The guesses of an estimator on TF-IDF of words and word pairs, for the validation texts."""
    if sum(map(len, training.texts)) > MAX_BYTES:
        return None
    try:
        import sklearn.linear_model as linear_model
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.pipeline import make_pipeline
    except ImportError:
        return None
    vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    model = make_pipeline(vectors, estimator(linear_model))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of convergence
            return model.fit(list(training.texts), labels).predict(list(validation.texts))
    except ValueError:  # no words at all
        return None


def _logistic(linear_model: Any) -> Any:
    return linear_model.LogisticRegression(C=10, max_iter=300)


def _one_vs_rest(linear_model: Any) -> Any:
    from sklearn.multiclass import OneVsRestClassifier

    return OneVsRestClassifier(_logistic(linear_model))
