"""Documents to learn from: the rows of a table, or the files of a text."""

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
    material: Material  # what they are read from


def documents(
    config: DataConfig, places: data.DataFolders, length: int, seed: int
) -> tuple[Documents, Documents]:
    """The training documents and the validation documents."""
    corpus = _corpus(config.source)
    if (corpus is None and not data.is_table(config.source)) or isinstance(corpus, data.TextCorpus):
        training, validation = texts(config, places, length)
        data.fingerprint_together(training, validation)  # from here on, a change is noticed
        return _of_text(training), _of_text(validation)
    table = (
        data.read_table(config.source, config.text_column, None)
        if corpus is None
        else _without_labels(corpus, places)
    )
    if config.validation is not None:
        return _of_table(table), _of_file(config.validation, config.text_column)
    kept, held_back = data.split_rows(table, config.validation_fraction, seed)
    return _of_table(kept), _of_table(held_back)


def open_documents(source: str, part: str, column: str, places: data.DataFolders) -> Documents:
    """The documents of a part of a corpus, or all of a file of one's own."""
    corpus = _corpus(source)
    if corpus is None:
        return _of_file(source, column)
    found = corpus.read(part, places)
    return _of_text(found) if isinstance(found, data.TextSource) else _of_table(found)


def _corpus(name: str) -> data.TextCorpus | data.LabelledCorpus | None:
    """A corpus of single texts; none: the name is that of a file."""
    corpus = data.CORPORA.get(name)
    if isinstance(corpus, data.PairCorpus):
        raise ValueError(
            f"{name} is of pairs, but a masked model reads single texts: choose another corpus, "
            f"or a file"
        )
    return corpus


def _of_file(path: str, column: str) -> Documents:
    if data.is_table(path):
        return _of_table(data.read_table(path, column, None))
    return _of_text(data.open_text(path))


def _without_labels(corpus: data.LabelledCorpus, places: data.DataFolders) -> data.Table:
    """All texts but those of the test, labelled or not."""
    parts = [corpus.read(part, places) for part in corpus.parts if part != "test"]
    return data.Table(corpus.name, tuple(text for part in parts for text in part.texts), None)


def _of_text(text: data.TextSource) -> Documents:
    return Documents(text.name, text.size, lambda: data.file_texts(text), text.decoded, text)


def _of_table(table: data.Table) -> Documents:
    size = bytes_of(table.texts)
    return Documents(table.name, size, lambda: table.texts, lambda: table.texts, table.texts)
