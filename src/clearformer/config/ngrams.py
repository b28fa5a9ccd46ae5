"""Ngrams: scores for the words and runs of words of a text, and the values they start from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clearformer.core.patterns import require

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# The evidence of each n-gram for each class, from counts. `of` takes the numbers of training texts
# with the n-gram that have the class and that do not, and returns the evidence: (n-grams, C).


@dataclass(frozen=True, kw_only=True)
class LogCountRatio:
    """How much more often the texts of a class have an n-gram than the others: naive Bayes.

    The logarithm of the ratio of its shares of all n-grams (Wang and Manning 2012).
    """

    smoothing: float = 1.0
    """Added to every count."""
    min_texts: int = 2
    """N-grams of fewer training texts have no evidence."""

    def __post_init__(self) -> None:
        require(self, "smoothing", 0 < self.smoothing <= 1e6, "above 0 and at most 1,000,000")
        require(self, "min_texts", 1 <= self.min_texts <= 10**9, "between 1 and 1,000,000,000")

    def of(self, inside: NDArray[np.float64], outside: NDArray[np.float64]) -> NDArray[np.float64]:
        import numpy as np

        known = (inside[:, :1] + outside[:, :1]) >= self.min_texts  # (n-grams, 1)
        shares = [
            np.log(counts / np.maximum(counts.sum(0, where=known), self.smoothing))
            for counts in (inside + self.smoothing, outside + self.smoothing)
        ]
        found: NDArray[np.float64] = np.where(known, shares[0] - shares[1], 0.0)
        return found


@dataclass(frozen=True, kw_only=True)
class Uniform:
    """The same evidence for every n-gram: a linear model without naive Bayes."""

    def of(self, inside: NDArray[np.float64], outside: NDArray[np.float64]) -> NDArray[np.float64]:
        import numpy as np

        return np.ones(inside.shape)


Evidence = LogCountRatio | Uniform


@dataclass(frozen=True, kw_only=True)
class Ngrams:
    """A score of each class for every n-gram that a text has, added to the logits of the head.

    The logits of such a model are head_weight * head + scores. A score is scale * evidence *
    weight: the evidence is counted in the training texts when a run starts, and stays; the weights
    are learned.
    """

    longest: int = 2
    """Tokens of the longest n-grams; 2: words and pairs of words."""
    buckets: int = 2**22
    """Rows of the table of weights; n-grams with the same hash share a row."""
    scale: float = 0.3
    """A factor of all scores: with a larger one they grow faster in training."""
    evidence: Evidence = LogCountRatio()
    weight: float = 0.0
    """Initial value of every weight; with 1 / scale an untrained score is that of naive Bayes."""
    head_weight: float = 0.1
    """Weight of the head's logits in the sum; 0: the scores of n-grams alone."""

    def __post_init__(self) -> None:
        require(self, "longest", 1 <= self.longest <= 8, "between 1 and 8")
        require(self, "buckets", 1 <= self.buckets <= 2**28, f"between 1 and {2**28}")
        require(self, "scale", 0 < self.scale <= 1000, "above 0 and at most 1,000")
        require(self, "head_weight", 0 <= self.head_weight <= 1000, "between 0 and 1,000")
        require(self, "weight", -1000 <= self.weight <= 1000, "between -1,000 and 1,000")
