"""What there is to learn: a task turns data into batches and a model into figures.

A task is chosen by the model's head: a generator learns a stream of tokens, a classifier
labelled rows, a masked model hidden tokens (masking.py). It also completes the model's config
with what only the data can tell, the size of the vocabulary and the number of classes.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, assert_never

import torch

from clearformer import data
from clearformer.config import (
    AnswerSpan,
    Classifier,
    DataConfig,
    Features,
    HiddenMemory,
    MaskedToken,
    MultipleChoice,
    NextSentence,
    NextToken,
    Pretraining,
    RunConfig,
    Seq2SeqConfig,
    TokenClassifier,
)
from clearformer.core.model import Batch, Transformer
from clearformer.tasks import evaluate, pattern_checks
from clearformer.tasks.evaluate import Measured
from clearformer.tasks.translation import Translation
from clearformer.tasks.xl_memory import Memories
from clearformer.text import Tokenizer
from clearformer.text import train as train_tokenizer

# Bytes of a stream that are evaluated during training: an indicator that costs little beside
# it. `clearformer evaluate` takes as much as it is told.
MOST_VALIDATION = 2**15

# A learned vocabulary that nobody chose: a token for so many bytes of text, so that each comes
# often enough to be learned, and at most as many as GPT-2 and BERT have.
BYTES_PER_TOKEN = 128
LARGEST_VOCABULARY = {"bpe": 50_257, "wordpiece": 30_522}
SMALLEST_VOCABULARY = 512
SAMPLED = 500  # texts that tell how long a text is


class Task(Protocol):
    """What a run needs to know of its data."""

    config: RunConfig  # completed
    tokenizer: Tokenizer
    identity: str  # of the data, so that another is not mistaken for it
    steps_per_epoch: int
    figure: str  # the name of the figure that decides which checkpoint is best
    larger_is_better: bool
    counted: str  # what a step learns to say, in the plural
    notes: tuple[str, ...]  # what the user should know about the data
    batches: Any  # which samples a step learns from is `batches.sample_ids(step)`

    def batch(self, step: int) -> Any: ...

    def evaluate(self, model: Any) -> Measured: ...

    def chance(self) -> float:
        """The loss of knowing nothing."""


def load(config: RunConfig, places: data.DataFolders, tokenizer: Tokenizer | None = None) -> Task:
    """The task that fits the model: its two stacks, or its head.

    The tokenizer is the one that is given, or one that the task learns.
    """
    from clearformer.tasks.masked import Masking  # which reads texts as the tasks here do

    if isinstance(config.model, Seq2SeqConfig):
        return Translation(config, places, tokenizer)
    match config.model.head:
        case NextToken() if isinstance(config.model.past, HiddenMemory):
            return Segments(config, places, tokenizer)
        case NextToken():
            return Stream(config, places, tokenizer)
        case Classifier():
            return Labels(config, places, tokenizer)
        case MaskedToken() | Pretraining():
            return Masking(config, places, tokenizer)
        case Features():
            raise ValueError(
                f"{config.model.name} gives vectors and has nothing to learn by itself: give it a "
                f"head with clearformer train classify --from"
            )
        case TokenClassifier() | AnswerSpan() | NextSentence() | MultipleChoice():
            raise ValueError(
                f"{config.model.name} has the head {type(config.model.head).__name__}, which is "
                f"not trained here: give it another with clearformer train classify --from"
            )
        case _:
            assert_never(config.model.head)


class Stream:
    """Predict the next token of a long text."""

    figure = "bits_per_byte"
    larger_is_better = False
    counted = "tokens"
    cut: type[data.StreamBatches] | type[data.SegmentBatches] = data.StreamBatches

    def __init__(
        self, config: RunConfig, places: data.DataFolders, tokenizer: Tokenizer | None = None
    ) -> None:
        pattern_checks.require_sight(config.model.patterns, config.model.length)
        training, held_back = texts(config.data, places, config.model.length)
        validation = beginning(held_back, MOST_VALIDATION)
        data.fingerprint_together(training, validation)  # from here on, a change is noticed
        self.tokenizer, self.notes = tokenizer_for(
            config.data, training.decoded, training.size, tokenizer
        )
        cache = (places.cache or Path(".")) / "tokens"
        self.training = data.prepare(training, self.tokenizer, cache, places.progress)
        self.validation = data.prepare(validation, self.tokenizer, cache, places.progress)
        model = replace(config.model, vocabulary=self.tokenizer.size)
        self.config = replace(config, model=model)
        self.batches = self.cut(self.training, model.length, config.train.batch, config.train.seed)
        self.steps_per_epoch = self.batches.steps_per_epoch
        self.identity = f"{self.training.sha256} {self.validation.sha256}"
        repeated = data.repeated_text(training, validation)
        notes = [*self.notes, *pattern_checks.remarks(model.patterns, model.length)]
        if data.is_table(config.data.source):
            notes.append(
                f"{config.data.source} is a table, and a generator reads it as it is, names of "
                f"columns and labels included"
            )
        if repeated > 0.1:
            notes.append(f"{repeated:.0%} of the validation text also stands in the training")
        self.notes = tuple(notes)

    def batch(self, step: int) -> Batch:
        found = self.batches.batch(step)
        return Batch(torch.from_numpy(found.tokens), torch.from_numpy(found.targets))

    def evaluate(self, model: Transformer) -> Measured:
        length = self.config.model.length
        # No more at a time than in training: what fits there must fit here.
        rows = min(16, self.config.train.batch // self.config.train.accumulate)
        found = evaluate.compress(
            model, self.validation, self.tokenizer, length, stride=length, batch=rows
        )
        return _measured(found)

    def chance(self) -> float:
        return math.log(self.tokenizer.size)


class Segments(Stream):
    """Predict the next token of long texts that go on from step to step: Transformer-XL."""

    cut = data.SegmentBatches

    def fresh(self, step: int) -> bool:
        assert isinstance(self.batches, data.SegmentBatches)
        return self.batches.fresh(step)

    def memory(self, parts: int) -> Memories:
        """Room for what `parts` micro-batches remember."""
        model = self.config.model
        assert isinstance(model.past, HiddenMemory)
        return Memories(model.layers, model.width, model.past.length, parts)

    def evaluate(self, model: Transformer) -> Measured:
        return _measured(
            evaluate.compress_segments(model, self.config.model, self.validation, self.tokenizer)
        )


def _measured(found: evaluate.Compression) -> Measured:
    figures = {"loss": found.loss, "bits_per_byte": found.bits_per_byte}
    return Measured(figures, found.scores, found.protocol)


class Labels:
    """Tell the label of a text."""

    figure = "accuracy"
    larger_is_better = True
    counted = "texts"

    def __init__(
        self, config: RunConfig, places: data.DataFolders, tokenizer: Tokenizer | None = None
    ) -> None:
        training, validation = tables(config.data, places, config.train.seed)
        self.names = data.label_names(training)
        size = sum(len(text.encode("utf-8", "surrogatepass")) for text in training.texts)
        self.tokenizer, told = tokenizer_for(
            config.data, lambda: iter(training.texts), size, tokenizer
        )
        rows = data.encode_rows(training, self.tokenizer, self.names)
        self.validation = data.encode_rows(validation, self.tokenizer, self.names)
        head = config.model.head
        assert isinstance(head, Classifier)
        model = replace(
            config.model,
            vocabulary=self.tokenizer.size,
            head=replace(head, classes=len(self.names), names=self.names),
        )
        self.config = replace(config, model=model)
        self.batches = data.RowBatches(
            rows, config.train.batch, config.train.seed, model.length, config.data.cut
        )
        self.steps_per_epoch = self.batches.steps_per_epoch
        self.identity = f"{rows.sha256()} {self.validation.sha256()}"
        notes = list(told)
        if self.batches.cut_rows:
            every = self.batches.cut_rows == len(rows)
            which = "all" if every else f"{self.batches.cut_rows:,} of"
            advice = ": a longer --length would show more of them" if every else ""
            notes.append(
                f"{which} {len(rows):,} texts are longer than {model.length} tokens and were cut "
                f"(kept: {config.data.cut}){advice}"
            )
        repeated = data.repeated_rows(training, validation)
        if repeated:
            notes.append(
                f"{repeated:,} of {len(validation):,} validation texts also stand in the training"
            )
        self.notes = tuple(notes)

    def batch(self, step: int) -> Batch:
        found = self.batches.batch(step)
        return Batch(
            torch.from_numpy(found.tokens),
            torch.from_numpy(found.labels),
            torch.from_numpy(found.keep),
        )

    def evaluate(self, model: Transformer) -> Measured:
        rows = min(32, self.config.train.batch // self.config.train.accumulate)
        guesses = evaluate.predict(model, self.validation, self.config, batch=rows)
        labels = torch.from_numpy(self.validation.labels)
        found = evaluate.report(guesses, labels, self.names)
        right = (guesses.argmax(dim=1) == labels).float()
        config = self.config
        protocol = evaluate.rows_protocol(self.validation, config.model.length, config.data.cut)
        return Measured({"loss": found.loss, "accuracy": found.accuracy}, right.tolist(), protocol)

    def chance(self) -> float:
        return math.log(len(self.names))


def tokenizer_for(
    config: DataConfig,
    read: Callable[[], Iterable[str]],
    size: int,
    given: Tokenizer | None = None,
) -> tuple[Tokenizer, tuple[str, ...]]:
    """The tokenizer of a run and what is to be said of it: the given one, or one learned from
    a text of `size` bytes."""
    if given is not None:
        return given, ()
    if config.tokenizer == "bytes":
        return train_tokenizer("bytes", (), None), ()
    largest = LARGEST_VOCABULARY.get(config.tokenizer)
    if config.vocabulary is not None or largest is None:
        return train_tokenizer(config.tokenizer, read(), config.vocabulary), ()
    suited = min(largest, max(SMALLEST_VOCABULARY, size // BYTES_PER_TOKEN))
    learned = train_tokenizer(config.tokenizer, read(), suited)
    return learned, (
        f"the {config.tokenizer} vocabulary has {learned.size:,} tokens, to suit a text of "
        f"{size:,} bytes; --data.vocabulary chooses another size",
    )


def texts(
    config: DataConfig, places: data.DataFolders, length: int
) -> tuple[data.TextSource, data.TextSource]:
    """The text to learn from, and the one held back."""
    if config.source in data.CORPORA:
        corpus = data.corpus(config.source)
        if not isinstance(corpus, data.TextCorpus):
            known = [n for n, c in data.CORPORA.items() if isinstance(c, data.TextCorpus)]
            raise ValueError(
                f"{corpus.name} is a table, but a generator learns from a text: train a "
                f"classifier on it, or choose {', '.join(known)}, or a file"
            )
        training = corpus.read("train", places)
        if config.validation is None and "validation" in corpus.parts:
            return training, corpus.read("validation", places)
    else:
        training = own_text(config.source)
    if config.validation is not None:
        return training, data.open_text(config.validation)
    return data.split_text(training, config.validation_share, minimum=length + 1)


def own_text(source: str) -> data.TextSource:
    """A text of one's own; a name that is nearly a corpus's is told so."""
    try:
        return data.open_text(source)
    except ValueError as problem:
        near = difflib.get_close_matches(source, data.CORPORA, n=1)
        if not near or Path(source).exists():
            raise
        raise ValueError(f"{problem}; did you mean the corpus {near[0]!r}?") from None


def beginning(text: data.TextSource, size: int) -> data.TextSource:
    """The first `size` bytes, and the rest of a character that they would cut."""
    if text.size <= size:
        return text
    follows = text.part(size, min(size + 4, text.size)).read()
    rest = next((i for i, byte in enumerate(follows) if byte & 0xC0 != 0x80), 0)
    return text.part(0, size + rest)


def tables(
    config: DataConfig, places: data.DataFolders, seed: int
) -> tuple[data.Table, data.Table]:
    """The rows to learn from, and those held back."""
    if config.source in data.CORPORA:
        corpus = data.corpus(config.source)
        if not isinstance(corpus, data.LabelledCorpus):
            labelled = [n for n, c in data.CORPORA.items() if isinstance(c, data.LabelledCorpus)]
            raise ValueError(
                f"{corpus.name} has no labels, but a classifier learns from them: choose "
                f"{', '.join(labelled)}, or a .csv, .tsv or .jsonl file"
            )
        table = corpus.read("train", places)
    else:
        table = data.read_table(config.source, config.text, config.label)
    if config.validation is not None:
        return table, data.read_table(config.validation, config.text, config.label)
    return data.split_rows(table, config.validation_share, seed)


def mean_length(config: RunConfig, places: data.DataFolders) -> int:
    """Tokens of a row as batches of a table have them, padded to their own longest: about the
    mean, by a sample that is read with a tokenizer of its own."""
    training, _ = tables(config.data, places, config.train.seed)
    texts = training.texts[:: max(1, len(training.texts) // SAMPLED)]
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    tokenizer, _ = tokenizer_for(config.data, lambda: iter(texts), size)
    most = config.model.length
    lengths = [min(len(ids), most) for ids in tokenizer.encode_many(texts)]
    return max(1, round(sum(data.batch_width(each, most) for each in lengths) / len(lengths)))
