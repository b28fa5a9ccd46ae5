"""Texts in the making, which Ctrl-C ends with what there is of them."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from clearformer.generate.context import ContextOverflow
from clearformer.generate.detokenize import Token
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.sequence import GeneratedSequence, GenerationConfig
from clearformer.generate.speculate import Draft, speculate
from clearformer.generate.stream import evaluating, generate_tokens, start_sequences


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


class Interruptible(GeneratedSequence):
    """A row that ends before its next token once somebody asks, and holds nothing back then."""

    def __init__(
        self,
        prompt: str,
        config: GenerationConfig,
        model: LanguageModel,
        seed: int,
        index: int,
        interrupt: Interrupt,
    ) -> None:
        super().__init__(model.encode(prompt), config, model.tokenizer, seed, index)
        self.interrupt = interrupt
        self.interrupted = False

    def advance(self, logits: Tensor) -> list[Token]:
        if self.interrupt.asked:
            self.interrupted = True
            return self.finish("length")
        return super().advance(logits)


@dataclass
class Text:
    """A text in the making: what it goes on from, and its tokens as far as they are certain."""

    prompt: str
    row: Interruptible
    tokens: list[Token] = field(default_factory=list)

    @property
    def finish_reason(self) -> str:
        """Why it ended."""
        return "interrupted" if self.row.interrupted else str(self.row.finish_reason)

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens)


@dataclass(frozen=True)
class Writing:
    """All that a text is written with."""

    model: LanguageModel
    config: GenerationConfig
    seed: int
    rule: ContextOverflow
    draft: Draft | None
    interrupt: Interrupt

    def __post_init__(self) -> None:
        start_sequences(
            self.model, (), self.config, self.seed, 0
        )  # refuses ids that are none of the model's

    def text(self, prompt: str, index: int = 0) -> Text:
        row = Interruptible(prompt, self.config, self.model, self.seed, index, self.interrupt)
        return Text(prompt, row)

    def tokens(self, texts: Sequence[Text]) -> Iterator[tuple[Text, Token]]:
        """The tokens of all texts as they come: side by side, with a draft one after the other."""
        with evaluating(self.model.module):
            if self.draft is None:
                by_number = {text.row.index: text for text in texts}
                for index, token in generate_tokens(
                    self.model, [text.row for text in texts], self.rule
                ):
                    by_number[index].tokens.append(token)
                    yield by_number[index], token
                return
            for text in texts:
                if self.interrupt.asked:
                    return
                for token in speculate(self.model, text.row, self.draft, self.rule):
                    text.tokens.append(token)
                    yield text, token

    def whole(self, texts: Sequence[Text]) -> Iterator[Text]:
        """Each text when it and all before it are done; one that was never begun does not come."""
        done = 0
        for text, _ in self.tokens(texts):
            # A row that is finished may still hand out what it held back: wait for the next one.
            while texts[done] is not text and texts[done].row.finish_reason:
                yield texts[done]
                done += 1
        yield from (text for text in texts[done:] if text.row.finish_reason)
