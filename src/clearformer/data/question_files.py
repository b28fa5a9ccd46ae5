"""Reads questions with their contexts and answers: SQuAD's .json, and .jsonl with one in a line."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from clearformer.data.files import read_file
from clearformer.data.tables import ending_of
from clearformer.data.tagged_files import json_objects, parse_json


@dataclass(frozen=True)
class Question:
    """A question, the text that may answer it, and the right answers; none: it has no answer."""

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...] = ()  # text, and where it starts in the context


@dataclass(frozen=True)
class Questions:
    """The questions of a file."""

    name: str
    rows: tuple[Question, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, rows: Sequence[int]) -> "Questions":
        """Only these questions, in this order."""
        return Questions(self.name, tuple(self.rows[row] for row in rows))

    @property
    def texts(self) -> tuple[str, ...]:
        """The contexts."""
        return tuple(row.context for row in self.rows)


def read_questions(path: str | Path, answers: bool = True) -> Questions:
    """The questions of a file.

    A .json file has SQuAD's form: data, paragraphs, context and qas. In a .jsonl file every object
    has `question`, `context` and `answers`, a list of {"text", "answer_start"} or one object with
    lists of both, as the datasets library has it; or one `answer` as a text. No answer: an empty
    list. With `answers=False` they are not read, and need not be there.
    """
    name = str(path)
    content = "".join(read_file(Path(path)).decoded())
    if ending_of(name) not in (".json", ".jsonl"):
        raise ValueError(f"{name}: questions are read from SQuAD's .json, or from .jsonl")
    squad = parse_json(content, name) if ending_of(name) == ".json" else None
    if isinstance(squad, dict):
        found = list(_squad(name, squad, answers))
    else:
        found = [_flat(name, where, item, answers) for where, item in json_objects(name, content)]
    if not found:
        raise ValueError(f"{name}: it has no questions")
    return Questions(name, tuple(found))


def _squad(name: str, document: dict[str, object], answers: bool) -> Iterator[Question]:
    number = 0
    for article in _items(name, "data", document):
        for paragraph in _items(name, "paragraphs", article):
            for asked in _items(name, "qas", paragraph):
                number += 1
                where = f"question {number}"
                context = {"context": paragraph.get("context")}
                yield _flat(name, where, context | asked, answers)


def _items(name: str, key: str, owner: dict[str, object]) -> list[dict[str, object]]:
    items = owner.get(key)
    if not isinstance(items, list) or not all(isinstance(each, dict) for each in items):
        raise ValueError(f"{name}: {key!r} is {items!r:.60}, but a list of objects is needed")
    return items


def _flat(name: str, where: str, item: dict[str, object], answers: bool) -> Question:
    question, context = (_text(name, where, key, item) for key in ("question", "context"))
    given = _answers(name, where, item) if answers else []
    placed = tuple(_placed(name, where, context, text, start) for text, start in given)
    return Question(str(item.get("id", where)), question, context, placed)


def _text(name: str, where: str, key: str, item: dict[str, object]) -> str:
    value = item.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name}, {where}: {key!r} is {value!r:.60}, but a text is needed")
    return value


def _answers(name: str, where: str, item: dict[str, object]) -> list[tuple[str, int | None]]:
    """Texts of the answers, and where each starts if that is said."""
    if isinstance(item.get("answer"), str):
        return [(str(item["answer"]), None)]
    given = item.get("answers")
    if isinstance(given, dict):
        texts, starts = given.get("text"), given.get("answer_start")
        if isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts):
            given = [
                {"text": text, "answer_start": start}
                for text, start in zip(texts, starts, strict=True)
            ]
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise ValueError(
            f"{name}, {where}: 'answers' is {given!r:.60}, but a list of objects with text and "
            f"answer_start is needed"
        )
    found = []
    for each in given:
        start = each.get("answer_start")
        place = start if isinstance(start, int) and not isinstance(start, bool) else None
        found.append((_text(name, where, "text", each), place))
    return found


def _placed(name: str, where: str, context: str, text: str, start: int | None) -> tuple[str, int]:
    """An answer and its place; one that is not where it should be is looked for."""
    if start is not None and context[start : start + len(text)] == text and start >= 0:
        return text, start
    found = context.find(text)
    if found < 0:
        raise ValueError(f"{name}, {where}: the answer {text!r:.60} is not in its context")
    return text, found
