"""Texts, one token after the other: many side by side, one as a stream, or each when it is done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from clearformer.core.model import Transformer
from clearformer.generate.context import PastContext, limit, require_room, room, slide, usual
from clearformer.generate.decoder import Decoder
from clearformer.generate.detokenize import Token
from clearformer.generate.sampling import Sampling
from clearformer.generate.sequence import Reason, Row, Task
from clearformer.generate.speculate import Draft, speculate
from clearformer.generate.writer import Writer, require_ids


@dataclass(frozen=True)
class Written:
    """A text that is done."""

    prompt: str | Sequence[int]
    text: str
    tokens: tuple[Token, ...]
    reason: Reason  # why it ended


def stream(
    writer: Writer,
    prompt: str | Sequence[int],
    how: Sampling | None = None,
    *,
    task: Task | None = None,
    most: int = 256,
    seed: int = 0,
    number: int = 0,
    past_context: PastContext | None = None,
    draft: Draft | None = None,
) -> Iterator[Token]:
    """The tokens that follow a prompt, each as soon as it is certain.

    `how` and `most` are the usual part of a `task`; give one or the other.
    """
    task = task or Task(how=how or Sampling(), most=most, ends=writer.ends())
    (row,) = begun(writer, [prompt], task, seed, number)
    rule = past_context or usual(writer.config)
    with writing(writer.model):
        if draft is None:
            for _, token in grow(writer, [row], rule):
                yield token
        else:
            yield from speculate(writer, row, draft, rule)


def generate(
    writer: Writer,
    prompt: str | Sequence[int],
    how: Sampling | None = None,
    *,
    task: Task | None = None,
    most: int = 256,
    seed: int = 0,
    past_context: PastContext | None = None,
    draft: Draft | None = None,
) -> Written:
    """The text that follows a prompt."""
    task = task or Task(how=how or Sampling(), most=most, ends=writer.ends())
    (written,) = generate_many(
        writer, [prompt], task, seed=seed, past_context=past_context, draft=draft
    )
    return written


def generate_many(
    writer: Writer,
    prompts: Sequence[str | Sequence[int]],
    task: Task,
    *,
    samples: int = 1,
    seed: int = 0,
    first: int = 0,
    past_context: PastContext | None = None,
    draft: Draft | None = None,
) -> Iterator[Written]:
    """`samples` texts for each prompt, all side by side, in the order of the prompts.

    Text number i (from `first`) depends on the seed and i, not on its neighbours. With a draft
    they are written one after the other: it pays where a single text is read at a time.
    """
    if samples < 1:
        raise ValueError(f"samples is {samples}, but it must be at least 1")
    prompts = [prompt for prompt in prompts for _ in range(samples)]
    rows = begun(writer, prompts, task, seed, first)
    if not rows:
        return
    rule = past_context or usual(writer.config)
    with writing(writer.model):
        if draft is not None:
            for prompt, row in zip(prompts, rows, strict=True):
                yield _written(prompt, list(speculate(writer, row, draft, rule)), row)
            return
        tokens: list[list[Token]] = [[] for _ in rows]
        done = 0
        for number, token in grow(writer, rows, rule):
            tokens[number - first].append(token)
            # A row that is finished may still hand out what it held back: wait for the next one.
            while done < number - first and rows[done].finished:
                yield _written(prompts[done], tokens[done], rows[done])
                done += 1
        for place in range(done, len(rows)):
            yield _written(prompts[place], tokens[place], rows[place])


def begun(
    writer: Writer, prompts: Sequence[str | Sequence[int]], task: Task, seed: int, first: int
) -> list[Row]:
    """A row for each prompt, numbered from `first`."""
    for name, ids in {
        "banned": task.how.banned,
        "forced": task.how.forced,
        "ends": task.ends,
    }.items():
        require_ids(f"{name} has", ids, writer.config)
    return [
        Row(writer.encode(prompt), task, writer.tokenizer, seed, number)
        for number, prompt in enumerate(prompts, first)
    ]


def grow(
    writer: Writer, rows: Sequence[Row], rule: PastContext, chunk: int | None = None
) -> Iterator[tuple[int, Token]]:
    """Tokens of all rows, each with its row's number, until all are finished."""
    full = limit(rule, writer.config)
    for row in rows:
        require_room(len(row), writer.config, full)
    active = list(rows)
    decoder = Decoder(writer, chunk)
    logits = decoder.read([row.seen for row in active], room(active, full))
    while True:
        slid = False
        for row, scores in zip(active, logits, strict=True):
            for token in row.take(scores):
                yield row.number, token
            if row.finished is None and full is not None and len(row) > full:
                slid = True
                for token in slide(row, rule, full):
                    yield row.number, token
        left = [place for place, row in enumerate(active) if row.finished is None]
        if not left:
            return
        if len(left) < len(active):
            decoder.select(left)
            active = [active[place] for place in left]
        # The cache may also be full of padding, once the longest text is done.
        if slid or decoder.full:
            logits = decoder.read([row.seen for row in active], room(active, full))
        else:
            logits = decoder.step([row.text[-1] for row in active])


@contextmanager
def writing(model: Transformer) -> Iterator[None]:
    """A model in evaluation mode; how it was comes back afterwards."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def _written(prompt: str | Sequence[int], tokens: Sequence[Token], row: Row) -> Written:
    assert row.finished is not None
    return Written(prompt, "".join(token.text for token in tokens), tuple(tokens), row.finished)
