"""A model that is looked at, and a text as this model reads it.

Each kind of model reads a text in its own way: a generator as a prompt, a classifier and BERT
between marks, an encoder-decoder as a source with its end mark and a target behind a start
mark, Transformer-XL in segments. What is read is the same as for every other verb.

Axes: T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from clearformer.config import AnyModelConfig
from clearformer.core.model import Seq2Seq, Transformer
from clearformer.explore.recording import Model
from clearformer.generate.writer import Writer
from clearformer.text import Tokenizer

START, END = "(start)", "(end)"  # how the marks of a target are shown


@dataclass(frozen=True)
class Subject:
    """A model with what is known of it; without a tokenizer it reads ids."""

    model: Model
    config: AnyModelConfig | None = None
    tokenizer: Tokenizer | None = None
    name: str = "model"

    @property
    def transformer(self) -> Transformer:
        """The model, known to have one stack."""
        return cast(Transformer, self.model)

    @property
    def seq2seq(self) -> Seq2Seq:
        """The model, known to have two stacks."""
        return cast(Seq2Seq, self.model)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each id stands for, to be shown."""
        if self.tokenizer is None:
            return [str(each) for each in ids]
        marks = self.marks
        known = iter(self.tokenizer.pieces([each for each in ids if each not in marks]))
        return [marks[each] if each in marks else next(known) for each in ids]

    @property
    def marks(self) -> dict[int, str]:
        """The ids that come after the tokenizer's own: what opens and closes a target."""
        if self.tokenizer is None:
            return {}
        marks = getattr(self.config, "marks", None)
        named = {} if marks is None else {marks.start: START, marks.end: END}
        return {id: name for id, name in named.items() if id >= self.tokenizer.size}


@dataclass(frozen=True)
class Input:
    """What a model is given: a batch of one."""

    tokens: Tensor  # (1, T); of an encoder-decoder the source
    target: Tensor | None = None  # (1, T)
    keep: Tensor | None = None  # (1, T), only if there is padding
    target_keep: Tensor | None = None
    segments: Tensor | None = None  # (1, T): which sentence of a pair
    start: int = 0  # of the last segment, where there is a memory
    segment: int = 0
    memory: int | None = None  # states that each layer remembers; none: no memory

    def queries(self, part: str) -> list[int]:
        """The ids that look, in this part of the model."""
        if part in ("decoder", "cross"):
            assert self.target is not None
            return self.target[0].tolist()
        return self.tokens[0, self.start :].tolist()

    def keys(self, part: str) -> list[int]:
        """The ids that are looked at; those of a memory come first."""
        if part == "decoder":
            return self.queries(part)
        return self.tokens[0, self.start - self.remembered :].tolist()

    def unpadded(self) -> Any:
        """The ids as `trace` takes them, without the padding that it added."""
        tokens = _real(self.tokens, self.keep)
        return tokens if self.target is None else (tokens, _real(self.target, self.target_keep))

    @property
    def remembered(self) -> int:
        return min(self.start, self.memory or 0)


def as_subject(model: Any) -> Subject:
    """The model itself, or what has one: an opened run, a translator, a subject."""
    if isinstance(model, Subject):
        return model
    if isinstance(model, Transformer | Seq2Seq):
        return Subject(model)
    inner = getattr(model, "translator", model)
    found, config = getattr(inner, "model", None), getattr(inner, "config", None)
    if not isinstance(found, Transformer | Seq2Seq):
        raise ValueError(
            f"{type(model).__name__} is no model and has none: give what clearformer.build.build "
            f"or clearformer.runs.load.open_run gives"
        )
    config = getattr(config, "model", config)
    return Subject(found, config, getattr(inner, "tokenizer", None), getattr(config, "name", ""))


def read(
    subject: Subject,
    tokens: str | Tensor | Sequence[int] | tuple[Any, Any],
    *,
    pad_to: int | None = None,
    segment: int | None = None,
    memory: int | None = None,
) -> Input:
    """A text, ids, or a pair of either, as the model is given it."""
    if len(subject.model.stacks) == 2:
        source, target = tokens if isinstance(tokens, tuple) else (tokens, tokens)
        given = Input(_row(_source(subject, source)), target=_row(_target(subject, target)))
        return given if pad_to is None else _padded(given, pad_to, subject)
    if isinstance(tokens, tuple) and len(tokens) == 2 and not isinstance(tokens[0], int):
        raise ValueError("a pair is for an encoder-decoder, but this model has one stack: give one")
    given = Input(_row(ids(subject, tokens) if isinstance(tokens, str) else tokens))
    given = replace(given, segments=_sentences(subject, given.tokens))
    given = _with_memory(given, subject, segment, memory)
    if pad_to is not None:
        if given.memory is not None:
            raise ValueError("a model with a memory reads whole segments: leave pad_to out")
        given = _padded(given, pad_to, subject)
    return given


def ids(subject: Subject, text: str) -> list[int]:
    """The ids of a text, as this model reads a whole one."""
    tokenizer, config = subject.tokenizer, subject.config
    if tokenizer is None:
        raise ValueError("there is a text, but the model comes without a tokenizer: give ids")
    if config is not None and "generate" in config.verbs:
        return Writer(subject.transformer, config, tokenizer).encode(text)
    found = [*tokenizer.before, *tokenizer.encode_marked(text).tolist(), *tokenizer.after]
    if not found:
        raise ValueError("the text is empty, so there is nothing to see: write a word")
    return found


def source_ids(subject: Subject, text: str) -> list[int]:
    """What an encoder-decoder reads: the text and its end mark."""
    assert subject.tokenizer is not None
    marks = _marks(subject)
    return [*subject.tokenizer.encode(text.strip()).tolist(), marks.end]


def target_ids(subject: Subject, text: str) -> list[int]:
    """What it is told that it has written: the start mark and the text."""
    assert subject.tokenizer is not None
    return [_marks(subject).start, *subject.tokenizer.encode(text.strip()).tolist()]


def _source(subject: Subject, given: Any) -> Any:
    return source_ids(subject, given) if isinstance(given, str) else given


def _target(subject: Subject, given: Any) -> Any:
    return target_ids(subject, given) if isinstance(given, str) else given


def _marks(subject: Subject) -> Any:
    marks = getattr(subject.config, "marks", None)
    if marks is None or subject.tokenizer is None:
        raise ValueError(
            "there is a text, but nobody knows this model's marks: open a trained translator, or "
            "give ids"
        )
    return marks


def _row(tokens: Tensor | Sequence[int]) -> Tensor:
    """Ids as a batch of one: (1, T)."""
    found = torch.as_tensor(tokens, dtype=torch.long)
    found = found[None] if found.dim() == 1 else found
    if found.dim() != 2 or found.shape[0] != 1 or found.shape[1] == 0:
        raise ValueError(
            f"tokens have shape {tuple(found.shape)}, but one sequence is traced: (T,) or (1, T)"
        )
    return found


def _real(row: Tensor, keep: Tensor | None) -> Tensor:
    return row if keep is None else row[:, : int(keep.sum())]


def _sentences(subject: Subject, tokens: Tensor) -> Tensor | None:
    """0 up to the first [SEP], 1 after it, for a model that tells two sentences apart."""
    tokenizer = subject.tokenizer
    end = None if tokenizer is None else tokenizer.specials.get("[SEP]")
    if end is None or subject.transformer.embedding.segment is None:
        return None
    ends = (tokens == end).long()
    if int(ends.sum()) < 2:
        return None  # one sentence alone
    return (ends.cumsum(1) - ends > 0).long()  # (1, T)


def _with_memory(given: Input, subject: Subject, segment: int | None, memory: int | None) -> Input:
    config = subject.config
    if config is not None and config.memory is not None:
        segment = config.length if segment is None else segment
        memory = config.memory if memory is None else memory
    if memory is None or segment is None:
        return given
    if segment < 1 or memory < 0:
        raise ValueError(f"segment is {segment} and memory {memory}: at least 1 and 0")
    # Cut as everywhere else: from the beginning, so that the last one may be short.
    start = (given.tokens.shape[1] - 1) // segment * segment
    segments = None if given.segments is None else given.segments[:, start:]
    return replace(given, start=start, segment=segment, memory=memory, segments=segments)


def _padded(given: Input, length: int, subject: Subject) -> Input:
    padding = 0 if subject.tokenizer is None else subject.tokenizer.padding
    tokens, keep = _pad(given.tokens, length, padding)
    if given.target is not None:
        target, target_keep = _pad(given.target, length, padding)
        return replace(given, tokens=tokens, keep=keep, target=target, target_keep=target_keep)
    segments = given.segments
    if segments is not None:
        segments, _ = _pad(segments, length, int(segments[0, -1]))
    return replace(given, tokens=tokens, keep=keep, segments=segments)


def _pad(row: Tensor, length: int, value: int) -> tuple[Tensor, Tensor]:
    """A row filled up on the right to `length`, and where it is real."""
    missing = length - row.shape[1]
    if missing < 0:
        raise ValueError(
            f"pad_to is {length}, but there are {row.shape[1]} tokens: padding only adds"
        )
    fill = row.new_full((1, missing), value)
    keep = torch.arange(length)[None] < row.shape[1]
    return torch.cat((row, fill), dim=1), keep
