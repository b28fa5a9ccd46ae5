"""Target: what is predicted of a whole text, as one value for each kind of label.

A target reads the labels of a table, completes a head from them, turns logits into probabilities or
numbers, and compares those with the labels. `classification`, `multi_label` and `regression` have
one each; the tasks of single texts and of pairs use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from torch import Tensor

from clearformer import data
from clearformer.config import RunConfig
from clearformer.core.heads import Head
from clearformer.data.rows import Targets
from clearformer.tasks.predictions import AnyPrediction
from clearformer.tasks.text_report import TextReport

if TYPE_CHECKING:
    from clearformer.tasks.baseline import AnyBaseline


class TextResult(Protocol):
    """What a model says about a text."""

    @property
    def cut(self) -> bool: ...
    @property
    def text(self) -> str: ...
    @property
    def texts(self) -> dict[str, str]: ...
    @property
    def prediction(self) -> AnyPrediction: ...
    def line(self, threshold: float | None = None) -> str: ...
    def answer(self, threshold: float | None = None) -> dict[str, object]: ...


class Target:
    """Base of the targets. `head` is the head of a model config."""

    form: ClassVar[data.LabelForm]  # of the label column

    def complete(self, head: Any, table: data.Table) -> Any:
        """The head with what the training data decides: its classes, or the scale of numbers."""
        raise NotImplementedError

    def names(self, config: RunConfig, name: object = None) -> tuple[str, ...]:
        """The names of the outputs; ValueError for a head without them."""
        raise NotImplementedError

    def encode(self, table: data.Table, head: Any) -> Targets:
        """What the loss compares with, for each row of a table."""
        raise NotImplementedError

    def known_rows(self, table: data.Table, head: Any) -> list[int]:
        """The rows whose labels the head has."""
        return list(range(len(table)))

    def outputs(self, logits: Tensor) -> Tensor:
        """Probabilities or numbers, from what a model gives for a batch: (B, C)."""
        raise NotImplementedError

    def report(self, outputs: Tensor, targets: Tensor, head: Any) -> TextReport:
        """Compare outputs (rows, C) with what `encode` gave."""
        raise NotImplementedError

    def result(
        self, texts: Sequence[str], outputs: Sequence[float], config: RunConfig, cut: bool
    ) -> Any:
        """What a verb says about a text, or about a pair of texts."""
        raise NotImplementedError

    def chance(self, head: Any) -> float:
        """The loss of a prediction that knows nothing."""
        raise NotImplementedError

    def prepare(self, head: Head, targets: Targets, config: RunConfig) -> None:
        """Give the head of a newly built model what its loss needs to know about the data."""

    def baseline(self, training: data.Table, validation: data.Table) -> AnyBaseline | None:
        """A simple method on the same split."""
        return None
