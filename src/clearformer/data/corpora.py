"""Corpora by name, from a folder, the cache, Python itself, or a download.

A corpus is the same for everyone: its content is checked against a published hash, wherever it is
stored. A corpus without a published hash is not downloaded.
"""

import os
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from clearformer.data.corpus_files import (
    ENWIK8_PARTS,
    DataFolders,
    enwik8,
    imdb,
    multi30k,
    shakespeare,
    wikitext2,
)
from clearformer.data.number_words import PARTS as NUMBER_PARTS
from clearformer.data.number_words import number_words
from clearformer.data.tables import Pairs, Table
from clearformer.data.texts import TextSource, in_memory
from clearformer.did_you_mean import nearest

Content = TypeVar("Content")


@dataclass(frozen=True)
class _Corpus(Generic[Content]):
    name: str
    about: str
    parts: tuple[str, ...]
    open: Callable[[str, DataFolders], Content]

    def read(self, part: str, folders: DataFolders) -> Content:
        """One part, such as "train"."""
        if part not in self.parts:
            raise ValueError(
                f"{self.name} has no part {part!r}: choose one of {', '.join(self.parts)}"
            )
        return self.open(part, folders)


class TextCorpus(_Corpus[TextSource]):
    """A text; without a part "validation", the end of "train" is split off for validation."""


class LabelledCorpus(_Corpus[Table]):
    """Texts with labels."""


class PairCorpus(_Corpus[Pairs]):
    """Texts with translations."""


Corpus = TextCorpus | LabelledCorpus | PairCorpus


def corpus(name: str) -> Corpus:
    """A corpus by its name; `corpus(name).read(part, places)` gives a part of it."""
    if name not in CORPORA:
        raise ValueError(f"there is no corpus {name!r}: {nearest(name, CORPORA)}")
    return CORPORA[name]


def python_docs(part: str, folders: DataFolders) -> TextSource:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise ValueError(
            "python-docs: this Python comes without pydoc_data, its built-in help: "
            "use another corpus, or Python from python.org"
        ) from None
    joined = "\n".join(f"{name}\n\n{topics[name].strip()}\n" for name in sorted(topics))
    return TextSource("python-docs", (in_memory("python-docs", joined.encode("utf-8")),))


def python_code(part: str, folders: DataFolders) -> TextSource:
    folder = Path(sysconfig.get_path("stdlib"))
    excluded = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
    paths = []
    for parent, subfolders, files in os.walk(folder):
        subfolders[:] = set(subfolders) - excluded  # not entered: installed packages may be huge
        paths += [Path(parent, file) for file in files if file.endswith(".py")]
    pieces = []
    for inside, path in sorted((path.relative_to(folder).as_posix(), path) for path in paths):
        data = path.read_bytes()
        try:
            data.decode("utf-8")
        except UnicodeDecodeError:
            continue  # a few files test other encodings
        if data and b"\0" not in data:
            pieces.append(in_memory(f"python-code: {inside}", data))
    if not pieces:
        raise ValueError(f"python-code: {folder} has no sources: use another corpus")
    return TextSource("python-code", tuple(pieces))


_ALL: tuple[Corpus, ...] = (
    TextCorpus(
        "python-docs", "Python's built-in help: 0.45 MB of English", ("train",), python_docs
    ),
    TextCorpus("python-code", "Python's standard library: 12 MB", ("train",), python_code),
    TextCorpus("shakespeare", "some of Shakespeare's plays: 1.1 MB", ("train",), shakespeare),
    TextCorpus("enwik8", "Wikipedia of 2006: 100 MB", tuple(ENWIK8_PARTS), enwik8),
    TextCorpus(
        "wikitext2", "good Wikipedia articles: 13 MB", ("train", "validation", "test"), wikitext2
    ),
    LabelledCorpus(
        "imdb", "reviews of films, liked or not: 50,000", ("train", "test", "unlabelled"), imdb
    ),
    PairCorpus(
        "multi30k",
        "captions, English and German: 31,014",
        ("train", "validation", "test"),
        multi30k,
    ),
    PairCorpus(
        "number-words",
        "numbers in words, English and German: some 24,000, made by num2words",
        NUMBER_PARTS,
        number_words,
    ),
)
CORPORA: Mapping[str, Corpus] = {each.name: each for each in _ALL}
