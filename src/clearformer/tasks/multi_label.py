"""Multi-label classification: a model learns which of several labels a text has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from clearformer import data
from clearformer.config import MultiLabelClassifier, RunConfig
from clearformer.core.heads import Head
from clearformer.data.label_forms import labels_of
from clearformer.data.rows import Targets
from clearformer.tasks.baseline import AnyBaseline, label_sets_baseline
from clearformer.tasks.classification import Classification, class_names
from clearformer.tasks.labelled_texts import LoadedTexts, TextTask
from clearformer.tasks.multi_label_report import LabelSetPrediction, MultiLabelReport, report
from clearformer.tasks.target import Target
from clearformer.tasks.task import LoadedTask
from clearformer.training.class_weights import WeightedLabels


@dataclass(frozen=True)
class LabelSet(Classification):
    """A text with its labels and the probability of each label; `label` lists them as one text."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels with a probability of at least one half."""
        return self.chosen()

    @property
    def probability(self) -> float:
        """That exactly these labels are right, if labels are independent."""
        return self.prediction.probability

    @property
    def prediction(self) -> LabelSetPrediction:
        """As a row of a table needs it."""
        return LabelSetPrediction(self.probabilities)

    def chosen(self, threshold: float | None = None) -> tuple[str, ...]:
        """The labels with at least this probability, one half by default."""
        return self.prediction.chosen(threshold)

    def line(self, threshold: float | None = None) -> str:
        """The labels and every probability, for a terminal."""
        listed = ", ".join(f"{name} {share:.3f}" for name, share in self.probabilities.items())
        return f"{'; '.join(self.chosen(threshold)) or 'none'}  ({listed})"

    def answer(self, threshold: float | None = None) -> dict[str, object]:
        """As JSON."""
        return {"labels": list(self.chosen(threshold)), "probabilities": self.probabilities}


class LabelSetTarget(Target):
    """Any number of labels."""

    form: ClassVar[data.LabelForm] = data.LABEL_SETS

    def complete(self, head: Any, table: data.Table) -> Any:
        assert isinstance(head, MultiLabelClassifier)
        names = tuple(self.form.names(table.labels or ()))
        if not names:
            raise ValueError(f"{table.name}: no text has a label, but a label is needed to learn")
        return replace(head, classes=len(names), names=names)

    def names(self, config: RunConfig, name: object = None) -> tuple[str, ...]:
        return class_names(config, name)

    def encode(self, table: data.Table, head: Any) -> Targets:
        numbers = {name: index for index, name in enumerate(head.names)}
        found = np.zeros((len(table), len(numbers)), dtype=np.float32)  # (rows, C)
        unseen: set[str] = set()
        for row, text in enumerate(table.labels or ()):
            labels = labels_of(text)
            unseen |= set(labels) - numbers.keys()
            found[row, [numbers[label] for label in labels if label in numbers]] = 1
        if unseen:
            shown = ", ".join(map(repr, sorted(unseen)[:10])) + (
                ", ..." if len(unseen) > 10 else ""
            )
            raise ValueError(
                f"{table.name}: {shown} {'are' if len(unseen) > 1 else 'is'} not in the training "
                f"data, whose labels are {', '.join(map(repr, head.names))}: remove these rows, or "
                f"evaluate with --unknown-label skip"
            )
        return found

    def known_rows(self, table: data.Table, head: Any) -> list[int]:
        names = set(head.names)
        return [
            row for row, text in enumerate(table.labels or ()) if names.issuperset(labels_of(text))
        ]

    def outputs(self, logits: Tensor) -> Tensor:
        return logits.sigmoid()

    def report(self, outputs: Tensor, targets: Tensor, head: Any) -> MultiLabelReport:
        return report(outputs, targets, head.names)

    def result(
        self, texts: Sequence[str], outputs: Sequence[float], config: RunConfig, cut: bool
    ) -> LabelSet:
        shares = dict(zip(class_names(config), outputs, strict=True))
        label = "; ".join(LabelSetPrediction(shares).chosen())
        return LabelSet(texts[0], label, shares, cut)

    def chance(self, head: Any) -> float:
        return math.log(2)

    def prepare(self, head: Head, targets: Targets, config: RunConfig) -> None:
        """Weight labels and their absence alike in the loss, if the settings say so."""
        if config.train.class_weights == "balanced":
            head.criterion = WeightedLabels.balanced(torch.from_numpy(targets))

    def baseline(self, training: data.Table, validation: data.Table) -> AnyBaseline | None:
        return label_sets_baseline(training, validation)


LABEL_SETS = LabelSetTarget()


class LabelSets(LoadedTexts):
    """A table of texts with any number of labels each."""

    target: ClassVar[Target] = LABEL_SETS


class MultiLabelTask(TextTask):
    """Predict which of several labels a text has."""

    target: ClassVar[Any] = LABEL_SETS
    metric: ClassVar[str] = "micro_f1"
    larger_is_better: ClassVar[bool] = True
    counted: ClassVar[str] = "labels"
    loaded: ClassVar[type[LoadedTask] | None] = LabelSets
    class_weights: ClassVar[bool] = True
    metrics: ClassVar[dict[str, bool]] = {
        "micro_f1": True,
        "macro_f1": True,
        "subset_accuracy": True,
        "loss": False,
    }

    def example_targets(self, rows: int, config: RunConfig) -> Tensor:
        return torch.zeros(rows, config.model.head.classes)
