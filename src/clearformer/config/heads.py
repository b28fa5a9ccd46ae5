"""Heads: what the hidden states of a model are turned into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from clearformer import limits
from clearformer.config.codec import require


@dataclass(frozen=True, kw_only=True)
class NextToken:
    """A generator's head; tied = it shares the embedding's weight."""

    tied: bool = True
    cap: float | None = None
    ends: tuple[int, ...] | None = None
    """Tokens that end a text, by number; none: those whose names say so."""


@dataclass(frozen=True, kw_only=True)
class MaskedToken:
    """The first of BERT's objectives alone: hidden tokens (tied)."""


@dataclass(frozen=True, kw_only=True)
class Pretraining:
    """BERT's two objectives: hidden tokens (tied) and next sentence."""


@dataclass(frozen=True, kw_only=True)
class Features:
    """No scores: one vector for the whole sequence, and hidden states to be used elsewhere."""

    pool: Literal["mean", "max", "first", "last", "pooler"] = "mean"


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """One class for the whole sequence."""

    classes: int = 2
    pool: Literal["mean", "max", "mean_max", "first", "last", "pooler"] = "mean"
    names: tuple[str, ...] | None = None  # of the classes, once data has told them
    bias: bool = True

    def __post_init__(self) -> None:
        _require_classes(self)


@dataclass(frozen=True, kw_only=True)
class TokenClassifier:
    """One class for every token, such as the kind of name that it is part of."""

    classes: int = 2
    names: tuple[str, ...] | None = None
    bias: bool = True

    def __post_init__(self) -> None:
        _require_classes(self)


@dataclass(frozen=True, kw_only=True)
class AnswerSpan:
    """Two scores for every token: the answer to a question starts here, it ends here."""


@dataclass(frozen=True, kw_only=True)
class NextSentence:
    """The second of BERT's objectives alone: does the second sentence follow the first?"""


@dataclass(frozen=True, kw_only=True)
class MultipleChoice:
    """One score for each sequence, to compare the answers to one question (pooled as BERT does)."""


def _require_classes(head: Classifier | TokenClassifier) -> None:
    most = limits.MAX_CLASSES
    require(head, "classes", 2 <= head.classes <= most, f"at least 2 and at most {most}")
    named = head.names is None or len(head.names) == head.classes
    require(head, "names", named, "as many as classes, or absent")


# Heads that come with a checkpoint; nothing here trains or evaluates them.
UntrainedHead = Features | TokenClassifier | AnswerSpan | NextSentence | MultipleChoice
Head = NextToken | Pretraining | MaskedToken | Classifier | UntrainedHead
