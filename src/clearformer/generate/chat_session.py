"""A conversation that goes on: its messages, and what fits into the context of the model."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from clearformer import safe_files
from clearformer.generate.detokenize import Token
from clearformer.safe_json import read_json
from clearformer.text.conversations import check_messages

Messages = list[dict[str, str]]
Answer = Callable[[Messages], Iterator[Token]]  # the tokens of the answer to messages


class ChatSession:
    """The messages so far; an answer that was interrupted is kept as far as it goes."""

    def __init__(self, answer: Answer, fits: Callable[[Messages], bool], system: str = "") -> None:
        self.answer = answer
        self.fits = fits
        self.system = system
        self.turns: Messages = []  # of user and assistant
        self.forgotten = 0  # messages at the beginning that no longer fit

    @property
    def messages(self) -> Messages:
        """The whole conversation."""
        start = [{"role": "system", "content": self.system}] if self.system else []
        return [*start, *self.turns]

    def ask(self, text: str) -> Iterator[str]:
        """Add a message of the user, and yield the text of the answer as it is generated."""
        before = list(self.turns)
        self.turns.append({"role": "user", "content": text})
        parts: list[str] = []
        try:
            shown = self._fitting()
            for token in self.answer(shown):
                parts.append(token.text)
                yield token.text
        except ValueError:
            self.turns = before  # a message that cannot be answered is not part of it
            raise
        finally:
            if len(self.turns) > len(before):
                self.turns.append({"role": "assistant", "content": "".join(parts)})

    def reset(self) -> None:
        """Begin a new conversation, with the same system message."""
        self.turns, self.forgotten = [], 0

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the conversation as JSON; each line of `train chat`'s data has the same form."""
        text = json.dumps({"messages": self.messages}, ensure_ascii=False)
        safe_files.replace(Path(path), f"{text}\n".encode())

    def load(self, path: str | os.PathLike[str]) -> None:
        """Continue a conversation that was saved."""
        document = read_json(Path(path))
        messages = document.get("messages") if isinstance(document, dict) else None
        found = check_messages(messages, answered=True)
        if found[0]["role"] == "system":
            self.system = found.pop(0)["content"]
        self.turns, self.forgotten = found, 0

    def _fitting(self) -> Messages:
        """The messages without as many of the oldest exchanges as do not fit."""
        messages, first = self.messages, 1 if self.system else 0
        self.forgotten = 0
        while not self.fits(messages) and len(messages) - first > 1:
            del messages[first : first + 2]
            self.forgotten += 2
        return messages
