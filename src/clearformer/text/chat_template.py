"""Chat templates: conversations as text, by the Jinja templates that checkpoints bring along."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from clearformer.text.conversations import check_messages

MAX_TEMPLATE = 200_000  # characters
Part = tuple[str, bool]  # a text, and whether it is an answer

# For a model that has none. Its markers consist of letters that are in most texts: a small model
# confuses bytes that its training text did not have (docs/log.md).
DEFAULT = (
    "{% for message in messages %}"
    "{{ '--' + message['role'] + '--\\n' + message['content'] + '\\nEND\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '--assistant--\\n' }}{% endif %}"
)


@dataclass(frozen=True, kw_only=True)
class ChatTemplate:
    """A template and the special tokens that it may name."""

    source: str = DEFAULT
    bos_token: str | None = None
    eos_token: str | None = None

    def __post_init__(self) -> None:
        if len(self.source) > MAX_TEMPLATE:
            raise ValueError(
                f"the chat template has {len(self.source):,} characters, but at most "
                f"{MAX_TEMPLATE:,} are read"
            )

    def render(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = False
    ) -> str:
        """The conversation as text, with the beginning of an answer if that is wanted.

        ValueError if the template is damaged, leaves its sandbox, exceeds its budget, or refuses
        the messages.
        """
        from clearformer.text.template_sandbox import render

        given = {"bos_token": self.bos_token, "eos_token": self.eos_token}
        tokens = {name: token for name, token in given.items() if token is not None}
        return render(
            self.source,
            [dict(message) for message in messages],
            add_generation_prompt=add_generation_prompt,
            **tokens,
        )

    def check(self) -> None:
        """Raise ValueError if the template cannot be compiled."""
        from clearformer.text.template_sandbox import check_template

        check_template(self.source)

    def examples(self, messages: Sequence[Mapping[str, Any]]) -> list[list[Part]]:
        """The texts that teach the answers of a conversation, each in parts.

        An answer is what follows the text that the template makes of all messages before it, with
        the beginning of an answer; so a model learns to write exactly what it will be asked for.
        Usually one text has all answers. Some templates write earlier messages differently once
        others follow (Qwen3 drops the reasoning of earlier answers): then each answer has a text
        of its own.
        """
        messages = check_messages(messages, answered=True)
        turns: list[tuple[str, str]] = []  # of each answer: the prompt, and the text with it
        for place, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            prompt = self.render(messages[:place], add_generation_prompt=True)
            text = self.render(messages[: place + 1])
            if not text.startswith(prompt):
                raise ValueError(
                    "the chat template does not write an answer after the prompt that asks for it, "
                    "so answers cannot be told from prompts: use another template"
                )
            turns.append((prompt, text))
        if any(not later.startswith(text) for (_, text), (later, _) in pairwise(turns)):
            return [[(prompt, False), (text[len(prompt) :], True)] for prompt, text in turns]
        parts: list[Part] = []
        done = ""
        for prompt, text in turns:
            parts += [(prompt[len(done) :], False), (text[len(prompt) :], True)]
            done = text
        return [parts]

    def answer_end(self) -> str:
        """The text after an answer, such as an end token and a line break; "" if it is only white
        space."""
        mark = "clearformer-answer"
        text = self.render(
            [{"role": "user", "content": "?"}, {"role": "assistant", "content": mark}]
        )
        end = text.rpartition(mark)[2] if mark in text else ""
        return end if end.strip() else ""
