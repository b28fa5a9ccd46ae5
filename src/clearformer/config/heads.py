"""Heads: what a model computes from its last hidden states, and what it is used for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from clearformer import limits
from clearformer.core.patterns import require

Verb = Literal["generate", "classify", "predict", "label", "answer", "fill", "translate", "embed"]
TextTask = Literal["classes", "multi-label", "regression"]
Pool = Literal["mean", "max", "mean_max", "first", "last", "pooler"]


class AnyHead:
    """Base of the heads: the name of such a model and the verbs that it supports."""

    noun: ClassVar[str]
    verbs: ClassVar[tuple[Verb, ...]] = ("embed",)  # the main one first
    sentence_pairs: ClassVar[bool] = False  # whether it learns from pairs of sentences
    two_texts: ClassVar[bool] = False  # whether it reads two texts: classes of pairs
    text_task: ClassVar[TextTask | None] = None  # what it predicts of a whole text
    pool: Pool | None = None
    classes: int = 0
    names: tuple[str, ...] | None = None  # of the classes

    @property
    def meaning(self) -> object:
        """What its outputs stand for: heads with another meaning do not share weights."""
        return self.names

    def classifier_pool(self, causal: bool) -> Pool:
        """How a classifier that begins from such a model pools its hidden states: the first token
        of a causal model sees no other."""
        return "mean" if causal else "first"


@dataclass(frozen=True, kw_only=True)
class NextToken(AnyHead):
    """A generator's head; tied = it shares the embedding's weight."""

    noun: ClassVar[str] = "a generator"
    verbs: ClassVar[tuple[Verb, ...]] = ("generate", "embed")

    tied: bool = True
    cap: float | None = None

    def classifier_pool(self, causal: bool) -> Pool:
        return "mean"


@dataclass(frozen=True, kw_only=True)
class MaskedToken(AnyHead):
    """The first of BERT's objectives alone: masked tokens (tied)."""

    noun: ClassVar[str] = "a masked model"
    verbs: ClassVar[tuple[Verb, ...]] = ("fill", "embed")


@dataclass(frozen=True, kw_only=True)
class Pretraining(AnyHead):
    """BERT's two objectives: masked tokens (tied) and next sentence."""

    noun: ClassVar[str] = "a masked model"
    verbs: ClassVar[tuple[Verb, ...]] = ("fill", "embed")
    sentence_pairs: ClassVar[bool] = True

    def classifier_pool(self, causal: bool) -> Pool:
        return "pooler"  # the task that BERT learned it for


@dataclass(frozen=True, kw_only=True)
class Features(AnyHead):
    """No logits: one vector for the whole sequence, such as an embedding of a text."""

    noun: ClassVar[str] = "an encoder"

    pool: Literal["mean", "max", "first", "last", "pooler"] = "mean"

    def classifier_pool(self, causal: bool) -> Pool:
        return self.pool


@dataclass(frozen=True, kw_only=True)
class Classifier(AnyHead):
    """One class for the whole sequence."""

    noun: ClassVar[str] = "a classifier"
    verbs: ClassVar[tuple[Verb, ...]] = ("classify", "embed")
    text_task: ClassVar[TextTask | None] = "classes"
    fewest: ClassVar[int] = 2  # classes

    classes: int = 2
    pool: Pool = "mean"
    names: tuple[str, ...] | None = None  # of the classes, once they are known from the data
    bias: bool = True

    def __post_init__(self) -> None:
        _require_classes(self)


@dataclass(frozen=True, kw_only=True)
class PairClassifier(Classifier):
    """One class for two texts, such as whether the second follows from the first."""

    noun: ClassVar[str] = "a classifier of pairs"
    two_texts: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class MultiLabelClassifier(Classifier):
    """Any number of labels for the whole sequence, each with a probability of its own."""

    noun: ClassVar[str] = "a multi-label classifier"
    text_task: ClassVar[TextTask | None] = "multi-label"
    fewest: ClassVar[int] = 1


@dataclass(frozen=True, kw_only=True)
class Regressor(AnyHead):
    """A number for the whole sequence; it learns (number - mean) / std."""

    noun: ClassVar[str] = "a regression model"
    verbs: ClassVar[tuple[Verb, ...]] = ("predict", "embed")
    text_task: ClassVar[TextTask | None] = "regression"

    pool: Pool = "mean"
    mean: float = 0.0  # of the numbers of the training data
    std: float = 1.0
    bias: bool = True

    def __post_init__(self) -> None:
        require(self, "mean", math.isfinite(self.mean), "a finite number")
        require(self, "std", 0 < self.std < math.inf, "above 0 and finite")

    @property
    def meaning(self) -> object:
        return self.mean, self.std


@dataclass(frozen=True, kw_only=True)
class TokenClassifier(AnyHead):
    """One class for every token, such as the kind of name that it is part of."""

    noun: ClassVar[str] = "a token classifier"
    verbs: ClassVar[tuple[Verb, ...]] = ("label", "embed")
    fewest: ClassVar[int] = 2  # classes

    classes: int = 2
    names: tuple[str, ...] | None = None
    bias: bool = True

    def __post_init__(self) -> None:
        _require_classes(self)


@dataclass(frozen=True, kw_only=True)
class AnswerSpan(AnyHead):
    """Two scores for every token: the answer to a question starts here, it ends here."""

    noun: ClassVar[str] = "a model for extractive question answering"
    verbs: ClassVar[tuple[Verb, ...]] = ("answer", "embed")

    unanswerable: bool = False  # whether it has learned that a context may hold no answer


@dataclass(frozen=True, kw_only=True)
class NextSentence(AnyHead):
    """The second of BERT's objectives alone: does the second sentence follow the first?"""

    noun: ClassVar[str] = "a next sentence predictor"

    def classifier_pool(self, causal: bool) -> Pool:
        return "pooler"  # the task that BERT learned it for


@dataclass(frozen=True, kw_only=True)
class MultipleChoice(AnyHead):
    """One score for each sequence, to compare the answers to one question (pooled as BERT does)."""

    noun: ClassVar[str] = "a multiple choice model"

    def classifier_pool(self, causal: bool) -> Pool:
        return "pooler"  # the task that BERT learned it for


def _require_classes(head: Classifier | TokenClassifier) -> None:
    most = limits.MAX_CLASSES
    allowed = head.fewest <= head.classes <= most
    require(head, "classes", allowed, f"at least {head.fewest} and at most {most}")
    named = head.names is None or len(head.names) == head.classes
    require(head, "names", named, "as many as classes, or absent")


# Heads that come with a checkpoint; nothing here trains or evaluates them.
UntrainedHead = Features | NextSentence | MultipleChoice
TextHead = Classifier | PairClassifier | MultiLabelClassifier | Regressor
FinetunedHead = TextHead | TokenClassifier | AnswerSpan
Head = NextToken | Pretraining | MaskedToken | FinetunedHead | UntrainedHead
