"""Which tokens end a text: a checkpoint tells their numbers, in one of two files, beside how its
makers write."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from clearformer.config import ModelConfig, NextToken
from clearformer.hub import generation_defaults
from clearformer.hub.hf_config import Settings
from clearformer.safe_json import read_json

GENERATION = "generation_config.json"
NAME = "eos_token_id"


def gather(folder: Path, data: dict[str, Any]) -> dict[str, Any]:
    """The settings; where there is a file about writing, what config.json says of it is old."""
    path = folder / GENERATION
    if not path.exists():
        return data
    beside = read_json(path)
    if not isinstance(beside, dict):
        raise ValueError(f"{path} is no object")
    about = {NAME, *generation_defaults.NAMES}
    return {
        **{name: value for name, value in data.items() if name not in about},
        **{name: value for name, value in beside.items() if name in about},
        NAME: beside.get(NAME),
    }


def read(settings: Settings, vocabulary: int, silent: Collection[int] = ()) -> tuple[int, ...]:
    """One number, several or none; `silent` are those that hold where nothing is said at all."""
    said = settings.anything(NAME) if NAME in settings.data else list(silent)
    found = said if isinstance(said, list) else [] if said is None else [said]
    if any(type(each) is not int or each < 0 for each in found):
        settings.refuse(NAME, said, "it must be the number of a token, or a list of numbers")
    # Numbers that no token has are left over from a larger model, and end nothing.
    return tuple(dict.fromkeys(each for each in found if each < vocabulary))


def written(config: ModelConfig) -> dict[str, Any]:
    """As config.json has it; nothing, and so the tokenizer's word, where no number is known."""
    head = config.head
    if not isinstance(head, NextToken) or head.ends is None:
        return {}
    return {NAME: head.ends[0] if len(head.ends) == 1 else list(head.ends) or None}
