"""Heads that a config.json names by its architecture, and the names of its classes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from clearformer import limits
from clearformer.config import (
    AnswerSpan,
    Classifier,
    Features,
    Head,
    NextToken,
    TokenClassifier,
)
from clearformer.hub.hf_config import Settings
from clearformer.hub.tensor_names import Row

# What follows a family's name in the name of a class of transformers.
SEQUENCE, TOKENS = "ForSequenceClassification", "ForTokenClassification"
ANSWER = "ForQuestionAnswering"


def architecture(settings: Settings) -> str | None:
    """The first of the classes that a config.json names."""
    named = settings.anything("architectures")
    first = named[0] if isinstance(named, list) and named else named or None
    if first is not None and not isinstance(first, str):
        settings.refuse("architectures", named, "it must name a class")
    return first


def class_names(settings: Settings) -> tuple[str, ...]:
    """The classes by id2label, by num_labels, or the two that hold where nothing is said."""
    labels = settings.anything("id2label")
    named = len(labels) if isinstance(labels, dict) and labels else 2
    count = settings.whole("num_labels", limits.MAX_CLASSES, named)
    if labels is None:
        return tuple(f"LABEL_{i}" for i in range(count))
    found = [labels.get(str(i)) for i in range(count)] if isinstance(labels, dict) else []
    if not all(isinstance(name, str) and _writable(name) for name in found):
        found = []
    if len(set(found)) != count:
        settings.refuse("id2label", labels, f"it must name the classes 0 to {count - 1}")
    return tuple(str(name) for name in found)


def _writable(text: str) -> bool:
    """Half of a surrogate pair is no text that any file could hold."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def classifier(settings: Settings, pool: Any, bias: bool = True) -> Classifier:
    """One class for a whole text; several at once, or a number, are read in another way."""
    settings.only("problem_type", "single_label_classification")
    names = _several(settings)
    return Classifier(classes=len(names), pool=pool, names=names, bias=bias)


def token_classifier(settings: Settings, bias: bool = True) -> TokenClassifier:
    names = _several(settings)
    return TokenClassifier(classes=len(names), names=names, bias=bias)


def _several(settings: Settings) -> tuple[str, ...]:
    names = class_names(settings)
    if len(names) < 2:
        settings.refuse("id2label", list(names), "a classifier has two classes or more here")
    return names


def written_classes(head: Head) -> dict[str, Any]:
    """id2label and its inverse, of a head that has classes."""
    if not isinstance(head, Classifier | TokenClassifier):
        return {}
    names = head.names or tuple(f"LABEL_{i}" for i in range(head.classes))
    return {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }


# --- heads on a decoder --------------------------------------------------------------------


def of_decoder(
    settings: Settings,
    names: Collection[str],
    generator: NextToken,
    body: str,
    token_bias: bool = True,
) -> Head:
    """The head of a GPT-2, a Llama or one of its relatives; `generator` where none is named.

    A body alone is a generator too where the head's weight is the embedding's.
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


def decoder_rows(head: Head, tokens: str) -> tuple[Row, ...]:
    """Where such a head lies; `tokens` is the family's name for that of a token classifier."""
    match head:
        case Classifier():
            return (Row("head.project.{}", "score.{}"),)
        case TokenClassifier():
            return (Row("head.project.{}", tokens + ".{}"),)
        case AnswerSpan():
            return (Row("head.project.{}", "qa_outputs.{}"),)
        case _:
            return (Row("head.project.weight", "lm_head.weight"),)


def decoder_class(head: Head, family: str, generator: str) -> str:
    """The class of transformers that has such a head."""
    endings: Mapping[type, str] = {
        Classifier: SEQUENCE,
        TokenClassifier: TOKENS,
        AnswerSpan: ANSWER,
        Features: "Model",
    }
    return family + endings.get(type(head), generator)
