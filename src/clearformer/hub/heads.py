"""Heads by the architecture that a config.json names, and the names of classes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from clearformer import limits
from clearformer.config import (
    AnswerSpan,
    Classifier,
    Features,
    Head,
    MultiLabelClassifier,
    NextToken,
    PairClassifier,
    Regressor,
    TextHead,
    TokenClassifier,
)
from clearformer.hub.hf_config import HFConfig
from clearformer.hub.tensor_names import Rename

# Suffixes of class names in transformers.
SEQUENCE, TOKENS = "ForSequenceClassification", "ForTokenClassification"
ANSWER = "ForQuestionAnswering"


def architecture(settings: HFConfig) -> str | None:
    """The first class that a config.json names."""
    named = settings.get("architectures")
    first = named[0] if isinstance(named, list) and named else named or None
    if first is not None and not isinstance(first, str):
        settings.refuse("architectures", named, "it must name a class")
    return first


def class_names(settings: HFConfig) -> tuple[str, ...]:
    """The names of classes from id2label or num_labels; two classes by default."""
    labels = settings.get("id2label")
    named = len(labels) if isinstance(labels, dict) and labels else 2
    count = settings.integer("num_labels", limits.MAX_CLASSES, named)
    if labels is None:
        return tuple(f"LABEL_{i}" for i in range(count))
    labels_by_id = [labels.get(str(i)) for i in range(count)] if isinstance(labels, dict) else []
    if not all(isinstance(name, str) and _writable(name) for name in labels_by_id):
        labels_by_id = []
    if len(set(labels_by_id)) != count:
        settings.refuse("id2label", labels, f"it must name the classes 0 to {count - 1}")
    return tuple(str(name) for name in labels_by_id)


def _writable(text: str) -> bool:
    """Whether a text has no lone surrogates, which no file can hold."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


# What a text gets, by the problem_type of a config.json.
REGRESSION, SEVERAL, ONE = (
    "regression",
    "multi_label_classification",
    "single_label_classification",
)


def classifier(settings: HFConfig, pool: Any, bias: bool = True) -> TextHead:
    """One label, several labels, or a number for a text; without a problem_type, one output is a
    number, as in transformers."""
    settings.require("problem_type", ONE, SEVERAL, REGRESSION)
    names, problem = class_names(settings), settings.get("problem_type")
    if problem == REGRESSION or (problem is None and len(names) == 1):
        if len(names) > 1:
            settings.refuse("num_labels", len(names), "a regression model has one output here")
        return Regressor(pool=pool, bias=bias)
    if problem == SEVERAL:
        return MultiLabelClassifier(classes=len(names), pool=pool, names=names, bias=bias)
    names = _at_least_two(settings)
    return Classifier(classes=len(names), pool=pool, names=names, bias=bias)


def token_classifier(settings: HFConfig, bias: bool = True) -> TokenClassifier:
    names = _at_least_two(settings)
    return TokenClassifier(classes=len(names), names=names, bias=bias)


def _at_least_two(settings: HFConfig) -> tuple[str, ...]:
    names = class_names(settings)
    if len(names) < 2:
        settings.refuse("id2label", list(names), "a classifier has two classes or more here")
    return names


def write_classes(head: Head) -> dict[str, Any]:
    """id2label and its inverse, if the head has classes, and what it predicts of a text."""
    if isinstance(head, Regressor):
        return {"problem_type": REGRESSION, **_named(("LABEL_0",))}
    if not isinstance(head, Classifier | TokenClassifier):
        return {}
    names = head.names or tuple(f"LABEL_{i}" for i in range(head.classes))
    problem = {"problem_type": SEVERAL} if isinstance(head, MultiLabelClassifier) else {}
    return {**problem, **_named(names)}


def _named(names: tuple[str, ...]) -> dict[str, Any]:
    return {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }


# --- heads on a decoder --------------------------------------------------------------------


def decoder_head(
    settings: HFConfig,
    names: Collection[str],
    generator: NextToken,
    body: str,
    token_bias: bool = True,
) -> Head:
    """The head of a GPT-2, a Llama or a similar model; `generator` if none is named.

    A body alone is also a generator if the head's weight is tied to the embedding.
    """
    named = architecture(settings) or body
    if named.endswith(SEQUENCE):
        return classifier(settings, "last", bias=False)
    if named.endswith(TOKENS):
        return token_classifier(settings, token_bias)
    if named.endswith(ANSWER):
        return AnswerSpan()
    if named == body and not generator.tied and "lm_head.weight" not in names:
        return Features(pool="last")
    return generator


def decoder_renames(head: Head, tokens: str) -> tuple[Rename, ...]:
    """Names of such a head; `tokens` is the family's name for that of a token classifier."""
    match head:
        case Classifier() | Regressor():
            return (Rename("head.project.{}", "score.{}"),)
        case TokenClassifier():
            return (Rename("head.project.{}", tokens + ".{}"),)
        case AnswerSpan():
            return (Rename("head.project.{}", "qa_outputs.{}"),)
        case _:
            return (Rename("head.project.weight", "lm_head.weight"),)


def decoder_architecture(head: Head, family: str, generator: str) -> str:
    """The class in transformers that has such a head."""
    endings: Mapping[type, str] = {
        Classifier: SEQUENCE,
        PairClassifier: SEQUENCE,
        MultiLabelClassifier: SEQUENCE,
        Regressor: SEQUENCE,
        TokenClassifier: TOKENS,
        AnswerSpan: ANSWER,
        Features: "Model",
    }
    return family + endings.get(type(head), generator)
