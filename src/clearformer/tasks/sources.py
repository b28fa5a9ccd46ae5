"""Training and validation data of a run: texts, tables, and the tokenizer trained on them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from clearformer import data
from clearformer.config import DataConfig
from clearformer.data.label_forms import task_hint
from clearformer.data.table_files import ending_of
from clearformer.text import Tokenizer
from clearformer.text import train as train_tokenizer

# Default size of a trained vocabulary: one token per so many bytes of text, so that each occurs
# often enough to be learned, and at most the size of GPT-2's or BERT's.
BYTES_PER_TOKEN = 128
LARGEST_VOCABULARY = {"bpe": 50_257, "wordpiece": 30_522}
SMALLEST_VOCABULARY = 512


def tokenizer_for(
    config: DataConfig,
    texts: Callable[[], Iterable[str]],
    size: int,
    tokenizer: Tokenizer | None = None,
) -> tuple[Tokenizer, tuple[str, ...]]:
    """The tokenizer of a run and notes on it: the given one, or one trained on a text of `size`
    bytes."""
    if tokenizer is not None:
        return tokenizer, ()
    if config.tokenizer == "bytes":
        return train_tokenizer("bytes", (), None), ()
    largest = LARGEST_VOCABULARY.get(config.tokenizer)
    if config.vocabulary is not None or largest is None:
        return train_tokenizer(config.tokenizer, texts(), config.vocabulary), ()
    suitable_size = min(largest, max(SMALLEST_VOCABULARY, size // BYTES_PER_TOKEN))
    trained = train_tokenizer(config.tokenizer, texts(), suitable_size)
    return trained, (
        f"the {config.tokenizer} vocabulary has {trained.size:,} tokens, chosen for a text of "
        f"{size:,} bytes; --data.vocabulary sets another size",
    )


def texts(
    config: DataConfig, folders: data.DataFolders, length: int
) -> tuple[data.TextSource, data.TextSource]:
    """The training text, or the share of it that is learned from, and the validation text."""
    training, validation = _whole_texts(config, folders, length)
    if config.training_share < 1:
        size = max(length + 1, round(config.training_share * training.size))
        training = beginning(training, size)
    return training, validation


def _whole_texts(
    config: DataConfig, folders: data.DataFolders, length: int
) -> tuple[data.TextSource, data.TextSource]:
    if config.source in data.CORPORA:
        corpus = data.corpus(config.source)
        if not isinstance(corpus, data.TextCorpus):
            names = [n for n, c in data.CORPORA.items() if isinstance(c, data.TextCorpus)]
            raise ValueError(
                f"{corpus.name} is a table, but a generator learns from a text: train a "
                f"classifier on it, or choose {', '.join(names)}, or a file"
            )
        training = corpus.read("train", folders)
        if config.validation is None and "validation" in corpus.parts:
            return training, corpus.read("validation", folders)
    else:
        training = _own_text(config.source, config.include)
    if config.validation is not None:
        return training, data.open_text(config.validation)
    return data.split_text(training, config.validation_fraction, minimum=length + 1)


def _own_text(source: str, include: str | None = None) -> data.TextSource:
    """The text of a file; a name close to that of a corpus gets a hint."""
    if data.is_table(source) and ending_of(source) in (".parquet", ".xlsx"):
        raise ValueError(
            f"{source} is a table, but a generator learns from a text: train classifier-pairs on "
            f"it, or save its texts as .txt"
        )
    try:
        return data.open_text(source, include=include)
    except ValueError as problem:
        near = difflib.get_close_matches(source, data.CORPORA, n=1)
        if not near or Path(source).exists():
            raise
        raise ValueError(f"{problem}; did you mean the corpus {near[0]!r}?") from None


def beginning(text: data.TextSource, size: int) -> data.TextSource:
    """The first `size` bytes, extended to the end of a character."""
    if text.size <= size:
        return text
    follows = text.part(size, min(size + 4, text.size)).read()
    rest = next((i for i, byte in enumerate(follows) if byte & 0xC0 != 0x80), 0)
    return text.part(0, size + rest)


def tables(
    config: DataConfig,
    folders: data.DataFolders,
    seed: int,
    form: data.LabelForm = data.ONE_LABEL,
) -> tuple[data.Table, data.Table]:
    """The training rows and the validation rows; the notes of a split table are on the former."""
    training, validation = _whole_tables(config, folders, seed, form)
    share = config.training_share
    part = data.share_of_rows(training, share, seed, form.stratified)
    return _with_every_label(part, training, form), validation


def _whole_tables(
    config: DataConfig, folders: data.DataFolders, seed: int, form: data.LabelForm
) -> tuple[data.Table, data.Table]:
    options = config.table
    if not config.source:
        raise ValueError("this model learns from a table of yours: give it as --data")
    if config.source in data.CORPORA:
        corpus = data.corpus(config.source)
        require_form(config.source, form)
        if not isinstance(corpus, data.LabelledCorpus):
            names = [n for n, c in data.CORPORA.items() if isinstance(c, data.LabelledCorpus)]
            raise ValueError(
                f"{corpus.name} has no labels, but a classifier learns from them: choose "
                f"{', '.join(names)}, or a .csv, .tsv or .jsonl file"
            )
        table = corpus.read("train", folders)
    else:
        table = _own_table(config, config.source, form)
    if config.validation is not None:
        validation = _own_table(config, config.validation, form)
        if options.normalize_labels:
            validation = validation.with_labels_of(form.names(table.labels or ()), form)
        return table, validation
    return split_table(table, config.validation_fraction, seed, form, options.rare)


def require_form(corpus: str, form: data.LabelForm) -> None:
    """Refuse a corpus for a model that learns something else than classes."""
    if not form.stratified:
        raise ValueError(
            f"{corpus} has one class for each text: leave out --task, or give a table of yours as "
            f"--data"
        )


def split_table(
    table: data.Table, share: float, seed: int, form: data.LabelForm, rare: str = "keep"
) -> tuple[data.Table, data.Table]:
    """The training rows, with the notes, and the validation rows; classes of one text by `rare`."""
    if form.stratified:
        table = table.without_rare(rare)
    try:
        parts = data.split_rows(table, share, seed, rare == "keep", form.stratified)
    except ValueError as problem:
        hint = task_hint(table.labels or ()) if form.stratified else None
        raise ValueError(f"{problem}{'' if hint is None else f'; {hint}'}") from None
    training = _with_every_label(parts[0], table, form)
    known = set(training.texts) if len(training) > len(parts[0]) else set()
    held_back = [row for row, text in enumerate(parts[1].texts) if text not in known]
    if not held_back:
        raise ValueError(
            f"{table.name}: every text has a label that no other text has, so that none can be "
            f"held back: give more rows, or a validation file; numbers are --task regression"
        )
    return replace(training, notes=table.notes), parts[1].select(held_back)


def _with_every_label(part: data.Table, table: data.Table, form: data.LabelForm) -> data.Table:
    """A part of a table, with the first text of each label that it lacks; a stratified part lacks
    none."""
    if form.stratified or len(part) == len(table):
        return part
    missing = set(form.names(table.labels or ())) - set(form.names(part.labels or ()))
    added = list[str]()
    for text, label in zip(table.texts, table.labels or (), strict=True):
        if missing.intersection(form.parts(label)):
            missing.difference_update(form.parts(label))
            added.append(text)
    if not added:
        return part
    wanted = {*part.texts, *added}
    rows = [row for row, text in enumerate(table.texts) if text in wanted]
    return replace(table.select(rows), notes=part.notes)


def _own_table(config: DataConfig, source: str, form: data.LabelForm) -> data.Table:
    columns = config.text_column, config.label_column
    return data.read_table(source, *columns, config.table, form=form)


def bytes_of(texts: Iterable[str]) -> int:
    """The size of texts in UTF-8."""
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def token_cache(folders: data.DataFolders) -> Path:
    """The folder of tokenized texts."""
    return (folders.cache or Path(".")) / "tokens"
