"""End-of-text tokens of a checkpoint, from config.json or generation_config.json."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from clearformer.config import GenerationDefaults, ModelConfig
from clearformer.hub import generation_defaults
from clearformer.hub.hf_config import HFConfig
from clearformer.safe_json import read_json

GENERATION_CONFIG = "generation_config.json"
KEY = "eos_token_id"


def read_generation_config(folder: Path) -> dict[str, Any] | None:
    """The object in generation_config.json; None if there is no such file."""
    path = folder / GENERATION_CONFIG
    if not path.exists():
        return None
    data = read_json(path)
    if not isinstance(data, dict):
        raise ValueError(f"{path} is not a JSON object")
    return data


def merge_files(folder: Path, data: dict[str, Any]) -> dict[str, Any]:
    """config.json, with the generation settings of generation_config.json if there is one."""
    generation = read_generation_config(folder)
    if generation is None:
        return data
    keys = {KEY, *generation_defaults.NAMES}
    return {
        **{name: value for name, value in data.items() if name not in keys},
        **{name: value for name, value in generation.items() if name in keys},
        KEY: generation.get(KEY),
    }


def read_eos(settings: HFConfig, vocabulary: int, default: Collection[int] = ()) -> tuple[int, ...]:
    """The ids that end a text: one, several or none; `default` if the key is absent."""
    value = settings.get(KEY) if KEY in settings.data else list(default)
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if any(type(each) is not int or each < 0 for each in ids):
        settings.refuse(KEY, value, "it must be the number of a token, or a list of numbers")
    # Ids outside the vocabulary are left over from a larger model.
    return tuple(dict.fromkeys(each for each in ids if each < vocabulary))


def read_generation(
    settings: HFConfig, config: ModelConfig, default: Collection[int] = ()
) -> GenerationDefaults:
    """The end tokens of a generator."""
    ids = read_eos(settings, config.vocabulary, default)
    return GenerationDefaults(end_ids=ids if "generate" in config.verbs else None)


def write_generation(config: ModelConfig, generation: GenerationDefaults) -> dict[str, Any]:
    """The entry for config.json; none if unknown, so that the tokenizer decides."""
    ids = generation.end_ids
    if ids is None or "generate" not in config.verbs:
        return {}
    return {KEY: ids[0] if len(ids) == 1 else list(ids) or None}
