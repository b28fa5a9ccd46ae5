"""Token labels: a model learns the label of each word, such as names, or parts of speech.

A word is labelled at its first token. A sentence longer than the context becomes several rows, so
that every word has a label.

Axes: T tokens, W words, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearformer import data
from clearformer.config import RunConfig, TokenClassifier
from clearformer.core.model import Transformer
from clearformer.data.examples import Example, Examples, padded
from clearformer.data.rows import IGNORE
from clearformer.data.split_words import Word, as_words, encode_words, split_words
from clearformer.data.tagged_files import TaggedSentences, read_tagged
from clearformer.escape import escape_line
from clearformer.tasks.examples import ExampleTask, LoadedExamples, row_logits, split
from clearformer.tasks.measured import Measured, standard_error
from clearformer.tasks.sources import bytes_of, tokenizer_for
from clearformer.tasks.task import EvaluationData, EvaluationRequest, LoadedTask, Material, Report
from clearformer.text import Tokenizer

OUTSIDE = "O"  # the label of a word that is part of nothing


# --- labels that mark spans ----------------------------------------------------------------


@dataclass(frozen=True, order=True)
class Entity:
    """Words with one label, such as a name of two words: those from `start` to `end` - 1."""

    start: int
    end: int
    label: str


def marks_spans(names: Sequence[str]) -> bool:
    """Whether labels are O and B-X, I-X (also E-X, S-X), which mark spans of words."""
    marked = [name for name in names if name != OUTSIDE]
    return bool(marked) and all(name[:2] in ("B-", "I-", "E-", "S-") for name in marked)


def entities(labels: Sequence[str]) -> list[Entity]:
    """The spans that labels mark, as conlleval counts them: I-X also begins a span after another
    label, and a span ends where its label changes."""
    found: list[Entity] = []
    start, kind, closed = 0, "", True
    for place, label in enumerate([*labels, OUTSIDE]):
        mark, _, own = label.partition("-")
        if kind and (closed or mark in "BS" or own != kind):
            found.append(Entity(start, place, kind))
            kind = ""
        if own and not kind:
            start, kind = place, own
        closed = mark in "ES"
    return found


# --- the verb ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Labelling:
    """The words of a text, each with its most likely label and the probability of that."""

    text: str
    words: tuple[str, ...]
    labels: tuple[str, ...]
    probabilities: tuple[float, ...]
    places: tuple[tuple[int, int], ...]  # characters of each word in the text

    @property
    def entities(self) -> list[tuple[str, str]]:
        """Text and label of each span that B- and I- labels mark."""
        return [
            (self.text[self.places[each.start][0] : self.places[each.end - 1][1]], each.label)
            for each in entities(self.labels)
        ]

    def row(self) -> dict[str, object]:
        """A row of a table."""
        return {"text": self.text, "tokens": list(self.words), "labels": list(self.labels)}


def label(
    model: Transformer,
    config: RunConfig,
    tokenizer: Tokenizer,
    texts: Sequence[str | Sequence[str]],
    name: object = None,
) -> list[Labelling]:
    """A label for each word of each text, a string or the words of one."""
    names = label_names(config, name)
    sentences = [split_words(each) if isinstance(each, str) else as_words(each) for each in texts]
    rows = encode_sentences(sentences, None, tokenizer, config.model.length)
    found = []
    probabilities = word_probabilities(model, rows, config, sentences)
    for text, words, table in zip(texts, sentences, probabilities, strict=True):
        best, guess = table.max(dim=1) if len(words) else (torch.empty(0), torch.empty(0))
        found.append(
            Labelling(
                text if isinstance(text, str) else " ".join(text),
                tuple(word.text for word in words),
                tuple(names[int(each)] for each in guess),
                tuple(best.tolist()),
                tuple((word.start, word.end) for word in words),
            )
        )
    return found


def label_names(config: RunConfig, name: object = None) -> tuple[str, ...]:
    """The labels of a token classifier; ValueError for any other model."""
    config.model.require_verb("label", name)
    names = config.model.head.names
    if names is None:
        raise ValueError(f"{name or config.model.name} has no names for its labels: train it first")
    return names


@dataclass(frozen=True)
class SentenceRows:
    """Sentences as rows; row i has the words of `sentences[i]` from `first_words[i]` on."""

    examples: Examples
    sentences: tuple[int, ...]
    first_words: tuple[int, ...]
    positions: tuple[NDArray[np.int64], ...]  # the token of each word in its row


def encode_sentences(
    sentences: Sequence[Sequence[Word]],
    labels: Sequence[Sequence[int]] | None,
    tokenizer: Tokenizer,
    length: int,
) -> SentenceRows:
    """Sentences as rows of at most `length` tokens, with a target at the first token of a word."""
    capacity = length - len(tokenizer.prefix_ids) - len(tokenizer.suffix_ids)
    if capacity < 1:
        raise ValueError(f"the length is {length}, but a row needs room for a token of a word")
    rows, numbers, first_words, positions = [], [], [], []
    for number, words in enumerate(sentences):
        for start, ids, firsts in _parts_of(words, tokenizer, capacity):
            tokens = np.array((*tokenizer.prefix_ids, *ids, *tokenizer.suffix_ids), dtype=np.int32)
            places = firsts + len(tokenizer.prefix_ids)
            target = np.full(len(tokens), IGNORE, dtype=np.int64)
            if labels is not None:
                target[places] = labels[number][start : start + len(places)]
            rows.append(Example(tokens, np.zeros(len(tokens), dtype=np.int32), target))
            numbers.append(number)
            first_words.append(start)
            positions.append(places)
    examples = Examples(tuple(rows), padded, tokenizer.padding)
    return SentenceRows(examples, tuple(numbers), tuple(first_words), tuple(positions))


def _parts_of(
    words: Sequence[Word], tokenizer: Tokenizer, capacity: int
) -> Iterator[tuple[int, NDArray[np.int32], NDArray[np.int64]]]:
    """Parts of whole words that fit: the first word, the tokens, and the first token of each word.

    A word with more tokens than fit is cut.
    """
    if not words:
        return
    encoded = encode_words(words, tokenizer)
    starts = [*encoded.firsts.tolist(), len(encoded.ids)]
    first = 0
    while first < len(words):
        fitting = (end for end in range(first + 1, len(words) + 1))
        last = first + 1
        for end in fitting:
            if starts[end] - starts[first] > capacity:
                break
            last = end
        tokens = encoded.ids[starts[first] : starts[last]][:capacity]
        yield first, tokens, np.array(starts[first:last], dtype=np.int64) - starts[first]
        first = last


def word_probabilities(
    model: Transformer,
    rows: SentenceRows,
    config: RunConfig,
    sentences: Sequence[Sequence[Any]],
    batch_size: int = 32,
) -> list[Tensor]:
    """Probabilities of each label for each word of each sentence: (W, C)."""
    found = [torch.zeros(len(words), config.model.head.classes) for words in sentences]
    logits = row_logits(model, rows.examples, config, batch_size)
    columns = zip(rows.sentences, rows.first_words, rows.positions, logits, strict=True)
    for sentence, first, positions, scores in columns:
        of_words = scores[torch.from_numpy(positions)].softmax(dim=-1)
        found[sentence][first : first + len(positions)] = of_words
    return found


# --- the objective -------------------------------------------------------------------------


class TaggedWords(LoadedExamples):
    """Sentences with a label for each word."""

    def _load(
        self, config: RunConfig, folders: data.DataFolders, tokenizer: Tokenizer | None
    ) -> None:
        training, self.held_back = _parts(config)
        names = tuple(sorted({each for labels in training.labels for each in labels}))
        if len(names) < 2:
            raise ValueError(
                f"{training.name}: a token classifier needs at least two labels, but there is only "
                f"{names[0]!r}"
            )
        self.names = tuple(sorted(names, key=lambda name: (name != OUTSIDE, name)))
        tokenizer, self.notes = tokenizer_for(
            config.data, lambda: iter(training.texts), bytes_of(training.texts), tokenizer
        )
        encoded = encode_tagged(training, self.names, tokenizer, config.model.length)
        self.rows = encode_tagged(self.held_back, self.names, tokenizer, config.model.length)
        head = TokenClassifier(classes=len(self.names), names=self.names)
        self.start(config, tokenizer, head, encoded.examples, self.rows.examples)
        if len(encoded.examples) > len(training):
            self.notes = (*self.notes, f"{len(training):,} sentences are "
                          f"{len(encoded.examples):,} rows of at most {config.model.length} "
                          f"tokens: long ones were split")  # fmt: skip

    def evaluate(self, model: Transformer) -> Measured:
        words = self.held_back.words
        tables = word_probabilities(model, self.rows, self.config, words, self.evaluation_batch)
        found = token_report(tables, self.held_back, self.names)
        return Measured(found.metrics, found.right, f"{len(found.right):,} words")

    def chance(self) -> float:
        return math.log(len(self.names))


class TokenLabelTask(ExampleTask):
    """Predict the label of each word."""

    metric: ClassVar[str] = "accuracy"
    larger_is_better: ClassVar[bool] = True
    counted: ClassVar[str] = "words"
    padded: ClassVar[bool] = True
    evaluation_rows: ClassVar[int | None] = 32
    loaded: ClassVar[type[LoadedTask] | None] = TaggedWords

    def example_targets(self, ids: Tensor) -> Tensor:
        return ids

    def training_material(self, config: RunConfig, folders: data.DataFolders) -> Material:
        return tuple(_parts(config)[0].texts)

    def evaluation_data(self, request: EvaluationRequest) -> EvaluationData:
        config, options = request.config, request.options
        names = label_names(config)
        if options.own_part is not None:
            found = _parts(config)[options.own_part]
        else:
            own = config.data
            columns = options.text or own.text_column, options.label or own.label_column
            found = read_tagged(options.data or own.source, *columns)
        rows = encode_tagged(found, names, request.tokenizer, config.model.length)
        return EvaluationData(request, found.name, found.texts, (rows, found))

    def measure(self, model: Transformer, prepared: EvaluationData) -> TokenReport:
        config, options = prepared.request.config, prepared.request.options
        rows, sentences = prepared.content
        tables = word_probabilities(model, rows, config, sentences.words)
        protocol = f"{len(sentences):,} sentences; {options.describe(prepared.name)}"
        return token_report(tables, sentences, label_names(config), protocol)


def encode_tagged(
    sentences: TaggedSentences, names: Sequence[str], tokenizer: Tokenizer, length: int
) -> SentenceRows:
    """Sentences as rows, with the numbers of their labels as targets."""
    assert sentences.labels is not None
    numbers = {name: number for number, name in enumerate(names)}
    unseen = sorted({each for labels in sentences.labels for each in labels} - set(names))
    if unseen:
        listed = ", ".join(map(repr, unseen[:10])) + (", ..." if len(unseen) > 10 else "")
        raise ValueError(
            f"{sentences.name}: some words have labels that are not in the training data "
            f"({listed}), but the labels are {', '.join(map(repr, names))}: change them"
        )
    labels = [[numbers[each] for each in labels] for labels in sentences.labels]
    return encode_sentences(list(map(as_words, sentences.words)), labels, tokenizer, length)


def _parts(config: RunConfig) -> tuple[Any, Any]:
    """Training and validation sentences."""
    columns = config.data.text_column, config.data.label_column
    return split(config, lambda path: read_tagged(path, *columns))


# --- the report ----------------------------------------------------------------------------


@dataclass(frozen=True)
class TokenReport(Report):
    """A token classifier on labelled sentences."""

    by_label: dict[str, tuple[int, int, int]]  # right, guessed and true spans (or words) of each
    spans: bool  # whether spans are counted, or words
    loss: float
    right: Sequence[float]  # 1 for each word with the right label, 0 for the others
    total: int = 0
    protocol: str = ""

    @property
    def accuracy(self) -> float:
        return sum(self.right) / len(self.right)

    @property
    def f1(self) -> float:
        """Of all spans together; without spans the mean over the labels."""
        if not self.spans:
            return sum(f1(*counts) for counts in self.by_label.values()) / len(self.by_label)
        return f1(*map(sum, zip(*self.by_label.values(), strict=True)))

    @property
    def metrics(self) -> dict[str, float]:
        return {"loss": self.loss, "accuracy": self.accuracy, "f1": self.f1}

    def lines(self, in_float32: TokenReport | None = None) -> list[str]:
        what = "spans, label and both ends right" if self.spans else "words, mean over labels"
        error = standard_error(self.right)
        sure = "" if error is None else f", standard error {error:.4f}"
        lines = [f"F1           {self.f1:.4f} ({what})"]
        if in_float32 is not None:
            lines.insert(0, f"in float32   {in_float32.f1:.4f}, loss {in_float32.loss:.4f}")
        lines += [
            f"accuracy     {self.accuracy:.4f} of {len(self.right):,} words{sure}",
            f"loss         {self.loss:.4f}",
            f"protocol: {self.protocol}",
        ]
        shown = {escape_line(name): counts for name, counts in sorted(self.by_label.items())}
        width = max(len(name) for name in (*shown, "label"))
        lines += ["", f"{'label':{width}}   count  precision  recall      F1"]
        for name, (right, guessed, true) in shown.items():
            precision, recall = right / max(guessed, 1), right / max(true, 1)
            of_true = f"{recall:.4f}  {f1(right, guessed, true):.4f}" if true else "     -       -"
            lines.append(f"{name:{width}} {true:7,}     {precision:.4f}  {of_true}")
        return lines


def f1(right: int, guessed: int, true: int) -> float:
    """The harmonic mean of precision and recall."""
    return 2 * right / (guessed + true) if guessed + true else 0.0


def token_report(
    tables: Sequence[Tensor], sentences: TaggedSentences, names: Sequence[str], protocol: str = ""
) -> TokenReport:
    """Compare the probabilities of each word's labels (W, C) with the true labels."""
    assert sentences.labels is not None
    numbers = {name: number for number, name in enumerate(names)}
    spans = marks_spans(names)
    counts: dict[str, list[int]] = {}
    right: list[float] = []
    loss = 0.0
    for table, labels in zip(tables, sentences.labels, strict=True):
        truth = torch.tensor([numbers[each] for each in labels])
        guesses = [names[int(each)] for each in table.argmax(dim=1)]
        loss -= float(table.gather(1, truth[:, None]).clamp(min=1e-12).log().sum())
        right += [float(a == b) for a, b in zip(guesses, labels, strict=True)]
        found, wanted = (set(_counted(each, spans)) for each in (guesses, labels))
        for place, which in enumerate((found & wanted, found, wanted)):
            for each in which:
                counts.setdefault(each.label, [0, 0, 0])[place] += 1
    if spans and not counts:
        counts = {names[-1].partition("-")[2]: [0, 0, 0]}  # no span anywhere
    by_label = {name: (a, b, c) for name, (a, b, c) in counts.items()}
    return TokenReport(by_label, spans, loss / len(right), right, len(sentences), protocol)


def _counted(labels: Sequence[str], spans: bool) -> list[Entity]:
    """What is counted: spans, or single words."""
    if spans:
        return entities(labels)
    return [Entity(place, place + 1, label) for place, label in enumerate(labels)]
