"""Reads sentences with a label for each word: CoNLL files, and .jsonl or .json with two lists."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from clearformer.data.files import read_file
from clearformer.data.tables import ending_of


@dataclass(frozen=True)
class TaggedSentences:
    """Sentences as words, with or without a label for each word."""

    name: str
    words: tuple[tuple[str, ...], ...]
    labels: tuple[tuple[str, ...], ...] | None

    def __len__(self) -> int:
        return len(self.words)

    def select(self, rows: Sequence[int]) -> "TaggedSentences":
        """Only these sentences, in this order."""
        labels = self.labels
        return TaggedSentences(
            self.name,
            tuple(self.words[row] for row in rows),
            None if labels is None else tuple(labels[row] for row in rows),
        )

    @property
    def texts(self) -> tuple[str, ...]:
        """Each sentence as a text."""
        return tuple(" ".join(words) for words in self.words)


Sentence = tuple[tuple[str, ...], tuple[str, ...]]


def read_tagged(path: str | Path, words: str = "tokens", labels: str = "labels") -> TaggedSentences:
    """The sentences of a file.

    In .jsonl and .json files each object has a list of words and a list of labels, in the columns
    of these names. Any other file has a word on each line, first, and its label, last, separated by
    spaces or a tab as in CoNLL-2003; an empty line ends a sentence.
    """
    name = str(path)
    content = "".join(read_file(Path(path)).decoded())
    is_json = ending_of(name) in (".json", ".jsonl")
    found = list(_objects(name, content, words, labels) if is_json else _columns(name, content))
    if not found:
        raise ValueError(f"{name}: it has no sentences")
    return TaggedSentences(name, tuple(w for w, _ in found), tuple(t for _, t in found))


def _columns(name: str, content: str) -> Iterator[Sentence]:
    sentence: list[tuple[str, str]] = []
    count = 0
    for number, line in enumerate(content.split("\n"), start=1):
        fields = line.split("\t") if "\t" in line else line.split()
        fields = [field.strip() for field in fields]
        comment = line.startswith("# ") and " = " in line  # as in CoNLL-U
        if not any(fields) or fields[0] == "-DOCSTART-":
            if sentence:
                yield _transposed(sentence)
            sentence = []
        elif not comment:
            count = count or len(fields)
            if len(fields) < 2 or len(fields) != count or not fields[0] or not fields[-1]:
                wanted = f"a word and its label, in {max(count, 2)} columns as above"
                raise ValueError(f"{name}, line {number}: it is {line[:40]!r}, but needs {wanted}")
            sentence.append((fields[0], fields[-1]))
    if sentence:
        yield _transposed(sentence)


def _transposed(sentence: Sequence[tuple[str, str]]) -> Sentence:
    return tuple(word for word, _ in sentence), tuple(label for _, label in sentence)


def _objects(name: str, content: str, words: str, labels: str) -> Iterator[Sentence]:
    for where, record in json_objects(name, content):
        sides = []
        for column in (words, labels):
            if column not in record:
                known = ", ".join(map(repr, list(record)[:20]))
                raise ValueError(f"{name}, {where}: there is no {column!r}; there are {known}")
            side = record[column]
            if not isinstance(side, list) or not all(isinstance(x, str | int) for x in side):
                raise ValueError(
                    f"{name}, {where}: {column!r} is {side!r:.60}, but a list of texts is needed"
                )
            sides.append(tuple(str(each) for each in side))
        if len(sides[0]) != len(sides[1]):
            counts = f"{len(sides[0])} {words} and {len(sides[1])} {labels}"
            raise ValueError(f"{name}, {where}: it has {counts}, but each word needs one label")
        if sides[0]:
            yield sides[0], sides[1]


def json_objects(name: str, content: str) -> Iterator[tuple[str, dict[str, object]]]:
    """The objects of a .jsonl file, or of a .json file that is a list, with their places."""
    if ending_of(name) == ".json":
        items = parse_json(content, name)
        if not isinstance(items, list):
            raise ValueError(f"{name}: it begins with {content.strip()[:20]!r}, but needs a list")
        places = ((f"item {number}", item) for number, item in enumerate(items, start=1))
    else:
        lines = enumerate(content.split("\n"), start=1)
        places = (
            (f"line {number}", parse_json(line, f"{name}, line {number}"))
            for number, line in lines
            if line.strip()
        )
    for where, item in places:
        if not isinstance(item, dict):
            raise ValueError(f"{name}, {where}: it is {item!r:.40}, but an object is needed")
        yield where, item


def parse_json(text: str, where: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: it is not JSON ({error})") from None
