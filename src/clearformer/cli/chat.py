"""`clearformer chat RUN`: a conversation with a trained model, in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from clearformer.arguments import Weights
from clearformer.cli.interruptible import Interrupt
from clearformer.cli.model_command import ModelCommand
from clearformer.cli.output import tell, write

if TYPE_CHECKING:
    from clearformer.generate.chat_session import ChatSession, Messages
    from clearformer.generate.detokenize import Token
    from clearformer.model import Model

COMMANDS = (
    "/system TEXT sets the system message, /reset begins anew, /save FILE writes the conversation, "
    "/quit or Ctrl-D ends; Ctrl-C stops an answer"
)


@dataclass(frozen=True)
class Chat(ModelCommand):
    """Talk to a model that was trained on conversations; Ctrl-C stops an answer."""

    message: tyro.conf.Positional[str | None] = None
    """One message to answer; none: a conversation, line by line."""
    system: str = ""
    """The system message."""
    conversation: Path | None = None
    """Continue the conversation that /save wrote into this file."""
    max_tokens: int = 500
    """Maximum number of tokens of an answer."""
    temperature: float | None = None
    """Sampling temperature; none: 0.8."""
    top_k: int | None = None
    """Sample from the k most likely tokens only."""
    top_p: float | None = None
    """Sample from the smallest set of tokens with this total probability."""
    min_p: float | None = None
    """Sample from tokens with at least this share of the highest probability."""
    repetition_penalty: float | None = None
    """Above 1: divide the logits of tokens in the conversation by this."""
    weights: Weights = "float32"
    """int8: smaller and faster on a CPU, slightly less accurate; int4: smaller still."""
    seed: int = 0
    """The same seed gives the same answers."""

    def run(self) -> None:
        model = self.load(weights=self.weights)
        interrupt = Interrupt()
        session = self._session(model, interrupt)
        if self.message is not None:
            self._answer(session, self.message, interrupt)
            if interrupt.requested():
                raise KeyboardInterrupt
            return
        if sys.stdin.isatty():
            tell(COMMANDS)
        while (line := self._line()) is not None:
            text = line.strip()
            try:
                if text.startswith("/"):
                    if not self._command(session, text):
                        return
                elif text:
                    self._answer(session, text, interrupt)
            except (ValueError, OSError) as problem:  # the conversation goes on
                tell(f"note: {problem}")

    def _session(self, model: Model, interrupt: Interrupt) -> ChatSession:
        from clearformer.generate.chat import chat_prompt
        from clearformer.generate.chat_session import ChatSession

        options: dict[str, Any] = {
            name: getattr(self, name)
            for name in (
                "max_tokens",
                "temperature",
                "top_k",
                "top_p",
                "min_p",
                "repetition_penalty",
                "seed",
            )
        }
        model.generation(options)  # errors come before the first message
        writer = model.language_model()

        def answer(messages: Messages) -> Iterator[Token]:
            return model.chat_sequence(messages, options, interrupt.requested)[1]

        def fits(messages: Messages) -> bool:
            return len(chat_prompt(writer, messages, model.name).ids) < model.config.length

        fits([{"role": "user", "content": "?"}])  # a model without a template is refused at once
        session = ChatSession(answer, fits, self.system)
        if self.conversation is not None:
            session.load(self.conversation)
        return session

    def _line(self) -> str | None:
        """The next line of the user; None at the end of the input."""
        while True:
            try:
                if sys.stdin.isatty():
                    write("> ")
                return sys.stdin.readline() or None
            except KeyboardInterrupt:  # nothing is lost by a Ctrl-C too many
                write("\n")
                if not sys.stdin.isatty():
                    raise
                tell("note: the conversation is kept; /quit or Ctrl-D ends it")

    def _answer(self, session: ChatSession, text: str, interrupt: Interrupt) -> None:
        interrupt.received = False
        with interrupt:
            try:
                for part in session.ask(text):
                    write(part)
            finally:
                write("\n")
        if session.forgotten:
            tell(f"note: the first {session.forgotten} messages no longer fit and were left out")
        if interrupt.requested():
            tell("note: the answer was stopped; the conversation is kept")

    def _command(self, session: ChatSession, line: str) -> bool:
        """Run a command of the user; False to end."""
        name, _, rest = line.partition(" ")
        match name:
            case "/quit" | "/exit":
                return False
            case "/system":
                session.system = rest.strip()
                tell("note: the system message is set" if rest else "note: no system message")
            case "/reset":
                session.reset()
                tell("note: a new conversation")
            case "/save":
                if not rest.strip():
                    raise ValueError("/save needs the name of a file: /save talk.json")
                session.save(Path(rest.strip()))
                tell(f"note: {len(session.messages)} messages are in {rest.strip()}")
            case _:
                tell(f"note: there is no command {name}: {COMMANDS}")
        return True
