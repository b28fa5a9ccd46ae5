"""Documents for masked language models: the rows of a table, or the files of a text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from clearformer import data
from clearformer.config import DataConfig
from clearformer.tasks.sources import bytes_of, texts
from clearformer.tasks.task import Material


@dataclass(frozen=True)
class Documents:
    """Texts that can be read more than once, as documents and as chunks of any size."""

    name: str
    size: int  # bytes
    documents: Callable[[], Iterable[str]]
    chunks: Callable[[], Iterable[str]]
    material: Material  # the text or texts that they come from


def documents(
    config: DataConfig, folders: data.DataFolders, length: int, seed: int
) -> tuple[Documents, Documents]:
    """The training documents and the validation documents."""
    corpus = _corpus(config.source)
    if (corpus is None and not data.is_table(config.source)) or isinstance(corpus, data.TextCorpus):
        training, validation = texts(config, folders, length)
        data.fingerprint_together(training, validation)  # later changes of the files are errors
        return _of_text(training), _of_text(validation)
    table = (
        data.read_table(config.source, config.text_column, None)
        if corpus is None
        else _without_labels(corpus, folders)
    )
    if config.validation is not None:
        return _of_table(table), _of_file(config.validation, config.text_column)
    training_rows, validation_rows = data.split_rows(table, config.validation_fraction, seed)
    return _of_table(training_rows), _of_table(validation_rows)


def open_documents(source: str, part: str, column: str, folders: data.DataFolders) -> Documents:
    """The documents of a part of a corpus, or of a file."""
    corpus = _corpus(source)
    if corpus is None:
        return _of_file(source, column)
    content = corpus.read(part, folders)
    return _of_text(content) if isinstance(content, data.TextSource) else _of_table(content)


def _corpus(name: str) -> data.TextCorpus | data.LabelledCorpus | None:
    """The corpus of single texts with this name; None if it is the name of a file."""
    corpus = data.CORPORA.get(name)
    if isinstance(corpus, data.PairCorpus):
        raise ValueError(
            f"{name} consists of pairs, but a masked model reads single texts: choose another "
            f"corpus, or a file"
        )
    return corpus


def _of_file(path: str, column: str) -> Documents:
    if data.is_table(path):
        return _of_table(data.read_table(path, column, None))
    return _of_text(data.open_text(path))


def _without_labels(corpus: data.LabelledCorpus, folders: data.DataFolders) -> data.Table:
    """All texts but those of the test part, labelled or not."""
    parts = [corpus.read(part, folders) for part in corpus.parts if part != "test"]
    return data.Table(corpus.name, tuple(text for part in parts for text in part.texts), None)


def _of_text(text: data.TextSource) -> Documents:
    return Documents(text.name, text.size, lambda: data.file_texts(text), text.decoded, text)


def _of_table(table: data.Table) -> Documents:
    size = bytes_of(table.texts)
    return Documents(table.name, size, lambda: table.texts, lambda: table.texts, table.texts)
