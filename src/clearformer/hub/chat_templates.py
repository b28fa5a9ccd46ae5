"""The chat template of a checkpoint: in a file of its own, or in tokenizer_config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clearformer.hub.tokenizer_config import (
    CONFIG,
    DEFAULT_TOKENS,
    read_object,
    read_tokenizer_config,
)
from clearformer.safe_json import read_limited
from clearformer.text.chat_template import MAX_TEMPLATE, ChatTemplate

FILE, JSON_FILE, KEY = "chat_template.jinja", "chat_template.json", "chat_template"


def read_chat_template(folder: Path) -> tuple[ChatTemplate | None, tuple[str, ...]]:
    """The template of a folder, or None, and notes; one that cannot be used is a note."""
    source = _source(folder)
    if source is None:
        return None, ()
    try:
        if not isinstance(source, str):
            raise ValueError(f"it is {source!r:.60}, but it must be a text")
        config = read_tokenizer_config(folder)
        roles = {**DEFAULT_TOKENS.get(config.tokenizer_class, {}), **config.roles}
        template = ChatTemplate(
            source=source, bos_token=roles.get("bos_token"), eos_token=roles.get("eos_token")
        )
        template.check()
    except ValueError as problem:
        return None, (f"left out, its chat template: {problem}",)
    return template, ()


def write_chat_template(template: ChatTemplate | None, folder: Path) -> None:
    """Write the template as `transformers` reads it."""
    if template is not None:
        (folder / FILE).write_text(template.source, encoding="utf-8", newline="")


def _source(folder: Path) -> Any:
    if (folder / FILE).exists():
        content = read_limited(folder / FILE, 4 * MAX_TEMPLATE, "MAX_TEMPLATE")
        return content.decode("utf-8", "replace")
    if (folder / JSON_FILE).exists():
        return read_object(folder / JSON_FILE).get(KEY)
    named = read_object(folder / CONFIG).get(KEY)
    if isinstance(named, list):  # several, by name
        by_name = {
            each.get("name"): each.get("template") for each in named if isinstance(each, dict)
        }
        return by_name.get("default")
    return named
