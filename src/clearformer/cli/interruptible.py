"""Texts in the making, which Ctrl-C ends with what there is of them."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from clearformer.generate.context import PastContext
from clearformer.generate.detokenize import Token
from clearformer.generate.sequence import Row, Task
from clearformer.generate.speculate import Draft, speculate
from clearformer.generate.stream import begun, grow, writing
from clearformer.generate.writer import Writer


class Interrupt:
    """Ctrl-C asks to end with what there is; a second one ends at once."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> Interrupt:
        self.before = signal.getsignal(signal.SIGINT)
        # A shell has what it starts in the background ignore Ctrl-C, which is not for it.
        if self.before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *problem: object) -> None:
        signal.signal(signal.SIGINT, self.before)

    def _ask(self, which: int, frame: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


class Interruptible(Row):
    """A row that ends before its next token once somebody asks, and holds nothing back then."""

    def __init__(
        self, prompt: str, task: Task, writer: Writer, seed: int, number: int, interrupt: Interrupt
    ) -> None:
        super().__init__(writer.encode(prompt), task, writer.tokenizer, seed, number)
        self.interrupt = interrupt
        self.interrupted = False

    def take(self, logits: Tensor) -> list[Token]:
        if self.interrupt.asked:
            self.interrupted = True
            return self.finish("length")
        return super().take(logits)


@dataclass
class Text:
    """A text in the making: what it goes on from, and its tokens as far as they are certain."""

    prompt: str
    row: Interruptible
    tokens: list[Token] = field(default_factory=list)

    @property
    def reason(self) -> str:
        """Why it ended."""
        return "interrupted" if self.row.interrupted else str(self.row.finished)

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens)


@dataclass(frozen=True)
class Writing:
    """All that a text is written with."""

    writer: Writer
    task: Task
    seed: int
    rule: PastContext
    draft: Draft | None
    interrupt: Interrupt

    def __post_init__(self) -> None:
        begun(self.writer, (), self.task, self.seed, 0)  # refuses ids that are none of the model's

    def text(self, prompt: str, number: int = 0) -> Text:
        row = Interruptible(prompt, self.task, self.writer, self.seed, number, self.interrupt)
        return Text(prompt, row)

    def tokens(self, texts: Sequence[Text]) -> Iterator[tuple[Text, Token]]:
        """The tokens of all texts as they come: side by side, with a draft one after the other."""
        with writing(self.writer.model):
            if self.draft is None:
                by_number = {text.row.number: text for text in texts}
                for number, token in grow(self.writer, [text.row for text in texts], self.rule):
                    by_number[number].tokens.append(token)
                    yield by_number[number], token
                return
            for text in texts:
                if self.interrupt.asked:
                    return
                for token in speculate(self.writer, text.row, self.draft, self.rule):
                    text.tokens.append(token)
                    yield text, token

    def whole(self, texts: Sequence[Text]) -> Iterator[Text]:
        """Each text when it and all before it are done; one that was never begun does not come."""
        done = 0
        for text, _ in self.tokens(texts):
            # A row that is finished may still hand out what it held back: wait for the next one.
            while texts[done] is not text and texts[done].row.finished:
                yield texts[done]
                done += 1
        yield from (text for text in texts[done:] if text.row.finished)
