"""Conversations: lists of messages with roles, checked before anything uses them.

A message is a dict with a `role` and a `content`, as the OpenAI API and Hugging Face have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]
ROLES = ("system", "user", "assistant")
MAX_MESSAGES = 10_000


def check_messages(messages: object, *, answered: bool) -> list[dict[str, str]]:
    """The messages as new dicts; ValueError if they are no conversation.

    A system message may come first; then user and assistant take turns. The last message is the
    assistant's if the conversation is `answered`, else the user's.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise ValueError(f"messages is {messages!r:.60}, but it must be a list of messages")
    if not messages:
        raise ValueError("there are no messages: give at least one of the user")
    if len(messages) > MAX_MESSAGES:
        raise ValueError(f"there are {len(messages):,} messages, but at most {MAX_MESSAGES:,} fit")
    found = [_message(each, place) for place, each in enumerate(messages)]
    turns = [each["role"] for each in found]
    expected = "user"
    for place, role in enumerate(turns):
        if role == "system" and place == 0:
            continue
        if role != expected:
            raise ValueError(
                f"messages[{place}] has the role {role}, but {_rule(place, expected)}: put the "
                f"roles in the order system (if any), user, assistant, user, ..."
            )
        expected = "assistant" if role == "user" else "user"
    if answered and turns[-1] != "assistant":
        raise ValueError(
            f"the conversation ends with a message of the role {turns[-1]}, so there is no answer "
            f"to learn: add one with the role assistant"
        )
    if not answered and turns[-1] != "user":
        raise ValueError(
            f"the conversation ends with a message of the role {turns[-1]}, so there is nothing to "
            f"answer: add one with the role user"
        )
    return found


def _rule(place: int, expected: str) -> str:
    if expected == "user":
        return f"{'the first' if place == 0 else 'the next'} message must be of the role user"
    return "after a user's message comes the assistant's"


def _message(message: object, place: int) -> dict[str, str]:
    where = f"messages[{place}]"
    if not isinstance(message, Mapping):
        raise ValueError(f"{where} is {message!r:.60}, but it must have a role and a content")
    role, content = message.get("role"), message.get("content")
    role = "system" if role == "developer" else role  # OpenAI's newer name
    if role not in ROLES:
        raise ValueError(
            f"{where} has the role {role!r:.60}, but it must be one of {', '.join(ROLES)}"
        )
    content = _joined(content, where) if isinstance(content, list) else content
    if not isinstance(content, str):
        raise ValueError(f"{where} has the content {content!r:.60}, but it must be a text")
    try:
        content.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{where} is not valid Unicode text: {content!r:.60}") from None
    return {"role": role, "content": content}


def _joined(parts: list[Any], where: str) -> str:
    """The text of a content that is given in parts."""
    texts = []
    for part in parts:
        text = part.get("text") if isinstance(part, Mapping) else None
        if not isinstance(text, str) or part.get("type") != "text":
            raise ValueError(f"{where} has the part {part!r:.60}, but only text is supported")
        texts.append(text)
    return "".join(texts)
