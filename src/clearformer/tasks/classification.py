"""Classification: a model learns the label of a text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from clearformer import data
from clearformer.config import Classifier, RunConfig
from clearformer.core.heads import Head
from clearformer.core.model import Transformer
from clearformer.data.rows import Targets, label_ids
from clearformer.tasks.baseline import Baseline, baseline
from clearformer.tasks.class_report import ClassReport, report
from clearformer.tasks.labelled_texts import LoadedTexts, TextTask, describe_texts, text_outputs
from clearformer.tasks.predictions import AnyPrediction, Prediction
from clearformer.tasks.target import Target
from clearformer.tasks.task import LoadedTask
from clearformer.text import Tokenizer
from clearformer.training.class_weights import WeightedCrossEntropy, balanced

# --- verbs ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Classification:
    """A text with its most likely class and the probability of each class."""

    text: str
    label: str
    probabilities: dict[str, float]
    cut: bool  # whether the text was longer than the model's context and was truncated

    @property
    def probability(self) -> float:
        """Of the most likely class."""
        return self.probabilities[self.label]

    @property
    def texts(self) -> dict[str, str]:
        """What was classified, by column."""
        return {"text": self.text}

    @property
    def prediction(self) -> AnyPrediction:
        """As a row of a table needs it."""
        return Prediction(self.probabilities)

    def line(self, threshold: float | None = None) -> str:
        """The label and every probability, for a terminal."""
        listed = ", ".join(f"{name} {share:.3f}" for name, share in self.probabilities.items())
        return f"{self._label(threshold) or 'unsure'}  ({listed})"

    def answer(self, threshold: float | None = None) -> dict[str, object]:
        """As JSON; the label is empty where no class has the probability `threshold`."""
        return {"label": self._label(threshold), "probabilities": self.probabilities}

    def _label(self, threshold: float | None) -> str:
        return "" if threshold is not None and self.probability < threshold else self.label


@dataclass(frozen=True)
class PairClassification(Classification):
    """Two texts with their most likely class and the probability of each class."""

    second: str

    @property
    def texts(self) -> dict[str, str]:
        """What was classified, by column."""
        return {"text": self.text, "second": self.second}


def classify(
    model: Transformer,
    config: RunConfig,
    tokenizer: Tokenizer,
    texts: Sequence[str | Sequence[int]],
    name: object = None,
) -> list[Classification]:
    """The class of each text, a string or token ids; `name` is the model's in error messages."""
    return describe_texts(model, config, tokenizer, texts, CLASSES, name)


def class_names(config: RunConfig, name: object = None) -> tuple[str, ...]:
    """The names of a classifier's classes; ValueError for any other model."""
    config.model.require_verb("classify", name)
    names = config.model.head.names
    if names is None:
        raise ValueError(
            f"{name or config.model.name} has no names for its classes: train it first"
        )
    return names


def predict(model: Transformer, rows: data.Rows, config: RunConfig, batch_size: int = 32) -> Tensor:
    """Probabilities of each class for each row, in the rows' order: (rows, classes)."""
    return text_outputs(model, rows, config, CLASSES, batch_size)


# --- the objective -------------------------------------------------------------------------


class ClassTarget(Target):
    """One of several classes."""

    form: ClassVar[data.LabelForm] = data.ONE_LABEL

    def complete(self, head: Any, table: data.Table) -> Any:
        assert isinstance(head, Classifier)
        names = data.label_names(table)
        return replace(head, classes=len(names), names=names)

    def names(self, config: RunConfig, name: object = None) -> tuple[str, ...]:
        return class_names(config, name)

    def encode(self, table: data.Table, head: Any) -> Targets:
        return label_ids(table, head.names)

    def known_rows(self, table: data.Table, head: Any) -> list[int]:
        return [row for row, label in enumerate(table.labels or ()) if label in head.names]

    def outputs(self, logits: Tensor) -> Tensor:
        return logits.softmax(dim=-1)

    def report(self, outputs: Tensor, targets: Tensor, head: Any) -> ClassReport:
        return report(outputs, targets, head.names)

    def result(
        self, texts: Sequence[str], outputs: Sequence[float], config: RunConfig, cut: bool
    ) -> Classification:
        names = class_names(config)
        found = names[max(range(len(names)), key=lambda index: outputs[index])]
        shares = dict(zip(names, outputs, strict=True))
        first, *others = texts
        if others:
            return PairClassification(first, found, shares, cut, *others)
        return Classification(first, found, shares, cut)

    def chance(self, head: Any) -> float:
        return math.log(head.classes)

    def prepare(self, head: Head, targets: Targets, config: RunConfig) -> None:
        """Weight the classes in the loss, if the settings say so."""
        if config.train.class_weights == "balanced":
            weights = balanced(targets, config.model.head.classes)
            head.criterion = WeightedCrossEntropy(weights)

    def baseline(self, training: data.Table, validation: data.Table) -> Baseline | None:
        return baseline(training, validation)


CLASSES = ClassTarget()


class Labels(LoadedTexts):
    """A table of texts with their labels."""

    target: ClassVar[Target] = CLASSES


class ClassificationTask(TextTask):
    """Predict the label of a text."""

    target: ClassVar[Any] = CLASSES
    metric: ClassVar[str] = "accuracy"
    larger_is_better: ClassVar[bool] = True
    loaded: ClassVar[type[LoadedTask] | None] = Labels
    class_weights: ClassVar[bool] = True
    metrics: ClassVar[dict[str, bool]] = {"accuracy": True, "macro_f1": True, "loss": False}

    def example_targets(self, rows: int, config: RunConfig) -> Tensor:
        return torch.zeros(rows, dtype=torch.long)
