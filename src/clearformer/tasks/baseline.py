"""Baseline of a classifier: TF-IDF and logistic regression of scikit-learn, on the same split."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from clearformer.data import Table
from clearformer.tasks.class_statistics import macro_f1

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
    if sum(map(len, training.texts)) > MAX_BYTES or not training.labels or not validation.labels:
        return None
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
    except ImportError:
        return None
    model = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
        LogisticRegression(C=10, max_iter=300),
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of convergence
            guesses = model.fit(list(training.texts), list(training.labels)).predict(
                list(validation.texts)
            )
    except ValueError:  # no words at all
        return None
    names = sorted({*training.labels, *validation.labels})
    numbers = {name: i for i, name in enumerate(names)}
    confusion = np.zeros((len(names), len(names)), dtype=np.int64)
    for label, guess in zip(validation.labels, guesses, strict=True):
        confusion[numbers[label], numbers[str(guess)]] += 1
    total = int(confusion.sum())
    return Baseline(float(np.trace(confusion) / total), float(macro_f1(confusion)), total)
