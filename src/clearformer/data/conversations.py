"""Reads conversations from tables, in four usual forms.

- `messages`: a list of objects with `role` and `content` (OpenAI, Hugging Face)
- `prompt` and `response` (or `completion`)
- `instruction`, `output` and optionally `input` (Alpaca)
- `conversations`: a list of objects with `from` and `value` (ShareGPT)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from clearformer.data.tables import Table, read_records
from clearformer.text.conversations import Message, check_messages

SPEAKERS = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "model": "assistant",
}


def read_conversations(path: str) -> Table:
    """The conversations of a .jsonl, .json, .csv or .tsv file, each as the JSON of its messages."""
    texts = []
    for where, record in read_records(path):
        try:
            messages = check_messages(_messages(record), answered=True)
        except ValueError as problem:
            raise ValueError(f"{path}, {where}: {problem}") from None
        texts.append(json.dumps(messages, ensure_ascii=False))
    if not texts:
        raise ValueError(f"{path}: there are no conversations in it")
    return Table(str(path), tuple(texts), None)


def parse_conversation(text: str) -> list[dict[str, str]]:
    """The messages of a row of `read_conversations`."""
    messages: list[dict[str, str]] = json.loads(text)
    return messages


def _messages(record: Mapping[str, Any]) -> Any:
    for columns, form in FORMS:
        if all(column in record for column in columns):
            return form(record)
    wanted = "; ".join(" and ".join(columns) for columns, _ in FORMS)
    raise ValueError(
        f"there is no conversation in the columns {', '.join(map(str, record))!s:.200}: give one "
        f"of {wanted}"
    )


def _alpaca(record: Mapping[str, Any]) -> list[Message]:
    parts = [record["instruction"], record.get("input") or ""]
    if not all(isinstance(part, str) for part in parts):
        raise ValueError("instruction and input must be texts")
    return _exchange("\n\n".join(part for part in parts if part), record["output"])


def _exchange(prompt: Any, response: Any) -> list[Message]:
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]


def _sharegpt(record: Mapping[str, Any]) -> Any:
    turns = record["conversations"]
    if not isinstance(turns, list):
        return turns
    messages = []
    for place, turn in enumerate(turns):
        speaker = turn.get("from") if isinstance(turn, Mapping) else None
        if speaker not in SPEAKERS:
            raise ValueError(
                f"conversations[{place}] is from {speaker!r:.40}, but it must be from one of "
                f"{', '.join(SPEAKERS)}"
            )
        messages.append({"role": SPEAKERS[speaker], "content": turn.get("value")})
    return messages


FORMS: tuple[tuple[tuple[str, ...], Callable[[Mapping[str, Any]], Any]], ...] = (
    (("messages",), lambda record: record["messages"]),
    (("conversations",), _sharegpt),
    (("instruction", "output"), _alpaca),
    (("prompt", "response"), lambda record: _exchange(record["prompt"], record["response"])),
    (("prompt", "completion"), lambda record: _exchange(record["prompt"], record["completion"])),
)
