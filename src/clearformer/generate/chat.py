"""Answers in a conversation: the prompt that a chat template makes, and where an answer ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clearformer.generate.language_model import LanguageModel
from clearformer.text.chat_template import ChatTemplate
from clearformer.text.conversations import Message, check_messages


@dataclass(frozen=True)
class ChatPrompt:
    """What a model continues to answer a conversation, and what ends the answer."""

    ids: tuple[int, ...]
    eos_ids: tuple[int, ...]
    stop: tuple[str, ...]


def chat_template(model: LanguageModel, name: str) -> ChatTemplate:
    """The chat template of a model, which is called `name` in messages."""
    template = model.generation.chat_template
    if template is None:
        raise ValueError(
            f"{name} has no chat template, so it cannot answer messages: continue a text with "
            f"generate, or train it on conversations with clearformer train chat --from"
        )
    return template


def chat_prompt(model: LanguageModel, messages: Sequence[Message], name: str) -> ChatPrompt:
    """The prompt of a conversation that ends with a user's message."""
    template = chat_template(model, name)
    text = template.render(check_messages(messages, answered=False), add_generation_prompt=True)
    ids = encode_rendered(model, text)
    end = template.answer_end()
    specials = {} if model.tokenizer is None else model.tokenizer.specials
    eos_ids = model.eos_ids()
    if end.strip() in specials:
        return ChatPrompt(ids, tuple(dict.fromkeys((*eos_ids, specials[end.strip()]))), ())
    return ChatPrompt(ids, eos_ids, (end,) if end else ())


def encode_rendered(model: LanguageModel, text: str) -> tuple[int, ...]:
    """The ids of a text that a template has written, with the special tokens that it names."""
    if model.tokenizer is None:
        raise ValueError("the model has no tokenizer, which messages need: load it with one")
    return tuple(model.encode(text))
