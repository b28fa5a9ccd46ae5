"""Extractive question answering: a model finds the part of a text that answers a question.

A row is the question and a window of the context; a long context has several windows, each half as
far on as it is long. Position 0 of a row stands for "no answer here".

Axes: T tokens.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from clearformer import data
from clearformer.config import AnswerSpan, RunConfig
from clearformer.core.model import Transformer
from clearformer.data.examples import Example, Examples, pair_layout, stacked
from clearformer.data.question_files import Question, Questions, read_questions
from clearformer.data.split_words import EncodedWords, Word, encode_words, split_words
from clearformer.tasks.examples import ExampleTask, LoadedExamples, row_logits, split
from clearformer.tasks.measured import Measured, standard_error
from clearformer.tasks.sources import bytes_of, tokenizer_for
from clearformer.tasks.task import EvaluationData, EvaluationRequest, LoadedTask, Material, Report
from clearformer.text import Tokenizer

MAX_ANSWER = 30  # tokens of an answer
NOWHERE = 0  # the position that means: no answer in this row


# --- rows ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    """Which part of which context a row shows: the tokens from `first` on, in the row from
    `offset` to `end`."""

    question: int
    first: int
    offset: int
    end: int


@dataclass(frozen=True)
class QuestionRows:
    """Questions as rows, and what is needed to find a position of a row in its context."""

    examples: Examples
    windows: tuple[Window, ...]
    words: tuple[list[Word], ...]  # of each question's context
    encoded: tuple[EncodedWords, ...]


def encode_questions(questions: Questions, tokenizer: Tokenizer, length: int) -> QuestionRows:
    """Every question as one row or more, with the first answer's position as the target."""
    layout = pair_layout(tokenizer)
    asked = tokenizer.encode_many([row.question for row in questions.rows])
    rows, windows, words, encoded = [], [], [], []
    for number, (question, ids) in enumerate(zip(questions.rows, asked, strict=True)):
        words.append(split_words(question.context))
        encoded.append(encode_words(words[-1], tokenizer))
        ids = ids[: max(1, length // 2)]
        capacity = length - layout.marks - len(ids)
        if capacity < 1:
            raise ValueError(f"the length is {length}, which leaves no room for a context")
        target = _target(question, words[-1], encoded[-1])
        offset, count = layout.second_start(len(ids)), len(encoded[-1].ids)
        for first in _window_starts(count, capacity):
            window = encoded[-1].ids[first : first + capacity]
            tokens, segments = layout.join(ids.tolist(), window.tolist())
            windows.append(Window(number, first, offset, offset + len(window)))
            rows.append(Example(tokens, segments, _in_window(target, windows[-1])))
    examples = Examples(tuple(rows), stacked, tokenizer.padding)
    return QuestionRows(examples, tuple(windows), tuple(words), tuple(encoded))


def _window_starts(tokens: int, capacity: int) -> list[int]:
    """Where windows begin: each half a window after the one before, until the end is reached."""
    starts = [0]
    while starts[-1] + capacity < tokens:
        starts.append(starts[-1] + max(1, capacity // 2))
    return starts


def _target(
    question: Question, words: Sequence[Word], encoded: EncodedWords
) -> tuple[int, int] | None:
    """The first and last token of the first answer in the context; None without an answer."""
    if not question.answers:
        return None
    text, start = question.answers[0]
    end = start + len(text)
    inside = [n for n, word in enumerate(words) if word.start < end and word.end > start]
    if not inside:
        return None
    tokens = np.flatnonzero((encoded.words >= inside[0]) & (encoded.words <= inside[-1]))
    return int(tokens[0]), int(tokens[-1])


def _in_window(target: tuple[int, int] | None, window: Window) -> np.ndarray:
    """The positions of an answer in a row; NOWHERE if the row does not show all of it."""
    if target is not None:
        first, last = (each - window.first + window.offset for each in target)
        if window.offset <= first and last < window.end:
            return np.array((first, last), dtype=np.int64)
    return np.array((NOWHERE, NOWHERE), dtype=np.int64)


# --- the verb ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """The part of a context that answers a question; an empty text: there is none."""

    question: str
    text: str
    start: int  # of the characters in the context
    end: int
    probability: float  # of the start times that of the end, in the window that shows it

    def row(self) -> dict[str, object]:
        """A row of a table."""
        rounded = round(self.probability, 6)
        return {"question": self.question, "answer": self.text, "probability": rounded}


def answer(
    model: Transformer,
    config: RunConfig,
    tokenizer: Tokenizer,
    questions: Sequence[tuple[str, str]],
    name: object = None,
) -> list[Answer]:
    """The answer to each question, given with its context."""
    config.model.require_verb("answer", name)
    for number, (question, context) in enumerate(questions, start=1):
        if not question.strip() or not split_words(context):
            which = "question" if not question.strip() else "context"
            raise ValueError(f"{which} {number} is empty: give a question and the text to read")
    if not questions:
        return []
    asked = Questions("the questions", tuple(Question("", *each) for each in questions))
    rows = encode_questions(asked, tokenizer, config.model.length)
    return best_answers(row_logits(model, rows.examples, config), asked, rows, config)


def best_answers(
    logits: Sequence[Tensor], questions: Questions, rows: QuestionRows, config: RunConfig
) -> list[Answer]:
    """The best span of each question over all its windows; logits of each row are (T, 2)."""
    head = config.model.head
    assert isinstance(head, AnswerSpan)
    best: dict[int, tuple[float, Answer]] = {}
    nowhere: dict[int, float] = {}
    for scores, window in zip(logits, rows.windows, strict=True):
        number = window.question
        score, answer = _best_span(scores, window, questions.rows[number], rows)
        if number not in best or score > best[number][0]:
            best[number] = score, answer
        none = float(scores[NOWHERE].sum())
        nowhere[number] = min(nowhere.get(number, math.inf), none)
    return [
        _nothing(answer) if head.unanswerable and nowhere[number] > score else answer
        for number, (score, answer) in sorted(best.items())
    ]


def _best_span(
    scores: Tensor, window: Window, question: Question, rows: QuestionRows
) -> tuple[float, Answer]:
    """The span of a window with the highest sum of scores, and that sum."""
    inside = scores[window.offset : window.end]  # (T, 2)
    count = len(inside)
    sums = inside[:, None, 0] + inside[None, :, 1]  # (T, T): starts by ends
    possible = torch.ones(count, count, dtype=torch.bool).triu().tril(MAX_ANSWER - 1)
    sums = sums.masked_fill(~possible, -math.inf)
    start, end = divmod(int(sums.argmax()), count)
    chances = torch.cat((scores[None, NOWHERE], inside)).softmax(dim=0)  # (1 + T, 2)
    probability = float(chances[1 + start, 0] * chances[1 + end, 1])
    words, own = rows.words[window.question], rows.encoded[window.question].words
    first, last = words[own[window.first + start]].start, words[own[window.first + end]].end
    text = question.context[first:last]
    return float(sums[start, end]), Answer(question.question, text, first, last, probability)


def _nothing(answer: Answer) -> Answer:
    return Answer(answer.question, "", 0, 0, 1 - answer.probability)


# --- the objective -------------------------------------------------------------------------


class AskedQuestions(LoadedExamples):
    """Questions with contexts and answers."""

    def _load(
        self, config: RunConfig, folders: data.DataFolders, tokenizer: Tokenizer | None
    ) -> None:
        training, self.held_back = _parts(config)
        texts = [f"{row.question}\n{row.context}" for row in training.rows]
        tokenizer, self.notes = tokenizer_for(
            config.data, lambda: iter(texts), bytes_of(texts), tokenizer
        )
        encoded = encode_questions(training, tokenizer, config.model.length)
        self.rows = encode_questions(self.held_back, tokenizer, config.model.length)
        head = AnswerSpan(unanswerable=any(not row.answers for row in training.rows))
        self.start(config, tokenizer, head, encoded.examples, self.rows.examples)
        if len(encoded.examples) > len(training):
            self.notes = (*self.notes, f"{len(training):,} questions are "
                          f"{len(encoded.examples):,} rows of at most {config.model.length} "
                          f"tokens: long contexts have several windows")  # fmt: skip

    def evaluate(self, model: Transformer) -> Measured:
        logits = row_logits(model, self.validation, self.config, self.evaluation_batch)
        found = answer_report(logits, self.held_back, self.rows, self.config)
        return Measured(found.metrics, found.f1s, f"{len(self.held_back):,} questions")

    def chance(self) -> float:
        lengths = [len(row.tokens) for row in self.validation.rows]
        return math.log(sum(lengths) / len(lengths))


class AnswerSpanTask(ExampleTask):
    """Find the answer to a question in a text."""

    metric: ClassVar[str] = "f1"
    larger_is_better: ClassVar[bool] = True
    counted: ClassVar[str] = "positions"
    padded: ClassVar[bool] = True
    evaluation_rows: ClassVar[int | None] = 32
    loaded: ClassVar[type[LoadedTask] | None] = AskedQuestions

    def example_targets(self, ids: Tensor) -> Tensor:
        return ids[:, :2]

    def training_material(self, config: RunConfig, folders: data.DataFolders) -> Material:
        return tuple(dict.fromkeys(_parts(config)[0].texts))

    def evaluation_data(self, request: EvaluationRequest) -> EvaluationData:
        config, options = request.config, request.options
        config.model.require_verb("answer")
        if options.own_part is not None:
            found = _parts(config)[options.own_part]
        else:
            found = read_questions(options.data or config.data.source)
        rows = encode_questions(found, request.tokenizer, config.model.length)
        return EvaluationData(request, found.name, found.texts, (rows, found))

    def measure(self, model: Transformer, prepared: EvaluationData) -> AnswerReport:
        config, options = prepared.request.config, prepared.request.options
        rows, questions = prepared.content
        logits = row_logits(model, rows.examples, config)
        protocol = f"{len(questions):,} questions; {options.describe(prepared.name)}"
        return answer_report(logits, questions, rows, config, protocol)


def _parts(config: RunConfig) -> tuple[Any, Any]:
    """Training and validation questions; all about one context stay in one part."""
    return split(config, read_questions)


# --- the report ----------------------------------------------------------------------------


@dataclass(frozen=True)
class AnswerReport(Report):
    """Answers to questions whose right answers are known."""

    answers: tuple[Answer, ...]
    exact: Sequence[float]  # 1 for each question that is answered exactly, 0 for the others
    f1s: Sequence[float]  # of each question
    without: int  # questions without an answer
    loss: float
    total: int = 0
    protocol: str = ""

    @property
    def metrics(self) -> dict[str, float]:
        count = len(self.exact)
        return {
            "loss": self.loss,
            "exact_match": sum(self.exact) / count,
            "f1": sum(self.f1s) / count,
        }

    def lines(self, in_float32: AnswerReport | None = None) -> list[str]:
        lines = []
        if in_float32 is not None:
            before = in_float32.metrics
            lines.append(f"in float32   F1 {before['f1']:.4f}, exact {before['exact_match']:.4f}")
        error = standard_error(self.f1s)
        sure = "" if error is None else f", standard error {error:.4f}"
        lines += [
            f"exact match  {self.metrics['exact_match']:.4f} of {self.total:,} questions",
            f"F1           {self.metrics['f1']:.4f} (words shared with the answer, mean){sure}",
            f"loss         {self.loss:.4f}",
        ]
        if self.without:
            lines.append(f"no answer    {self.without:,} questions have none")
        return [*lines, f"protocol: {self.protocol}"]


def answer_report(
    logits: Sequence[Tensor],
    questions: Questions,
    rows: QuestionRows,
    config: RunConfig,
    protocol: str = "",
) -> AnswerReport:
    """Compare the best spans with the right answers, as SQuAD does."""
    found = best_answers(logits, questions, rows, config)
    exact, f1s = [], []
    for answer, question in zip(found, questions.rows, strict=True):
        right = [text for text, _ in question.answers] or [""]
        exact.append(max(float(normalized(answer.text) == normalized(each)) for each in right))
        f1s.append(max(word_f1(answer.text, each) for each in right))
    without = sum(not row.answers for row in questions.rows)
    loss = _loss(logits, rows.examples)
    return AnswerReport(tuple(found), exact, f1s, without, loss, len(questions), protocol)


def _loss(logits: Sequence[Tensor], examples: Examples) -> float:
    """Mean cross-entropy of the two positions over all rows."""
    total = 0.0
    for scores, row in zip(logits, examples.rows, strict=True):
        targets = torch.from_numpy(row.target)
        total += float(torch.nn.functional.cross_entropy(scores.T, targets))
    return total / len(examples)


def normalized(text: str) -> str:
    """A text as SQuAD compares it: lower case, without punctuation, articles and extra spaces."""
    kept = "".join(each for each in text.lower() if each not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def word_f1(guess: str, right: str) -> float:
    """F1 of the words that two answers share; 1 if both are empty."""
    one, other = normalized(guess).split(), normalized(right).split()
    if not one or not other:
        return float(one == other)
    shared = sum((Counter(one) & Counter(other)).values())
    return 2 * shared / (len(one) + len(other))
