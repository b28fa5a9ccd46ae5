"""The `clearformer train` command of a planned run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearformer.cli import train as train_verb
from clearformer.config import GenerationDefaults, TrainConfig
from clearformer.config.settings import kinds
from clearformer.config.settings import spelled as name

if TYPE_CHECKING:
    from clearformer.cli.plan import Plan

FROM_DATA = (
    "--model.vocabulary",
    "--model.head.names",
    "--model.head.mean",
    "--model.head.std",
    "--generation.typical-source-ids",
    "--generation.typical-target-ids",
)
BUDGETS = tuple(f"--train.{each}" for each in train_verb.BUDGETS)


def command(asked: Plan, train: TrainConfig) -> tuple[list[str], list[str]]:
    """The words of `clearformer train` for this run, and the settings that no flag can express.

    A model that is not a preset is started with --from; ValueError if that is impossible.
    """
    words, missing = _base_words(asked), []
    base = train_verb.defaults(words)
    if "--from" in words:
        from clearformer.runs.finetune import require_same_body

        require_same_body(base.model, asked.model, asked.preset)
    choices = kinds(base)
    for part, value, default in (
        ("--model", asked.model, base.model),
        ("--data", asked.data, base.data),
        ("--train", train, base.train),
        ("--generation", _chosen(asked.generation), _chosen(base.generation)),
    ):
        for place, flags in differences(part, value, default, choices):
            words += flags
            missing += [] if flags else [place]
    if "--train.optimizer" in words and "--train.learning-rate" not in words:
        words += [
            "--train.learning-rate",
            str(asked.train.learning_rate),
        ]  # which another optimizer asks for
    if asked.data_dir is not None:
        words += ["--data-dir", str(asked.data_dir)]
    return words, missing


def _chosen(generation: GenerationDefaults) -> GenerationDefaults:
    """Without the start and end tokens of a translator, which follow from its tokenizer."""
    if generation.start_id is None:
        return generation
    return replace(generation, start_id=None, end_ids=None)


def _base_words(asked: Plan) -> list[str]:
    """The preset that `train` starts with, or --from and a folder."""
    from clearformer.families import preset, presets

    path, model = Path(asked.preset), asked.model.name
    if not path.exists():
        return [asked.preset, *_task_words(asked, asked.preset)]
    if model in presets() and type(preset(model)) is type(asked.model):
        return [model, *_task_words(asked, model)]
    return ["--from", str(path if path.is_dir() else path.parent)]


def _task_words(asked: Plan, name: str) -> list[str]:
    """--task, if the model predicts something else than its preset."""
    from clearformer.families import preset, presets

    task = asked.model.head.text_task
    usual = preset(name).head.text_task if name in presets() else task
    return [] if task is None or usual in (None, task) else ["--task", task]


def differences(
    path: str, value: Any, default: Any, choices: Mapping[str, Any]
) -> Iterator[tuple[str, list[str]]]:
    """Every setting that differs from its default, with its words; no words if it has no flag.

    Settings that follow from the data are omitted. `choices` are the fields whose class can be
    chosen.
    """
    for field in fields(value):
        flag = f"{path}.{name(field.name)}"
        one, other = getattr(value, field.name), getattr(default, field.name)
        if one == other or flag in FROM_DATA:
            continue
        if one is None and flag in BUDGETS:
            continue  # one budget takes the place of another
        if flag[2:] in choices and type(one) is not type(other):
            words, other = _kind_words(flag, one)
            yield flag[2:], words
            if not words:
                continue
        if is_dataclass(one) and type(one) is type(other):
            yield from differences(flag, one, other, choices)
        elif _same_kinds(one, other):
            for place, pair in enumerate(zip(one, other, strict=True)):
                yield from differences(f"{flag}.{place}", *pair, choices)
        elif one != other:
            yield flag[2:], _value_words(flag, one)


def _kind_words(flag: str, value: Any) -> tuple[list[str], Any]:
    """Words that select a value of this class, and the resulting value; None
    if it has a required field that is not an integer."""
    if value is None:
        return [flag, "none"], None
    needed = {
        each.name: getattr(value, each.name)
        for each in fields(value)
        if each.default is MISSING and each.default_factory is MISSING
    }
    if any(not 0 <= each < 2**53 or each != int(each) for each in needed.values()):
        return [], None
    kind = re.sub("(?<=[a-z])(?=[A-Z][a-z]{2})", "-", type(value).__name__).lower()
    words = [flag, kind]
    for field, each in needed.items():
        words += [f"{flag}.{name(field)}", str(int(each))]
    return words, type(value)(**needed)


def _value_words(flag: str, value: Any) -> list[str]:
    """A flag and its value; None if the parser would read another value."""
    if isinstance(value, bool):
        place, _, last = flag.rpartition(".")
        return [flag if value else f"{place}.no-{last}"]
    if isinstance(value, tuple):
        return [flag, *map(str, value)] if all(type(each) is int for each in value) else []
    if is_dataclass(value) or value == "None":
        return []
    if isinstance(value, str) and (value.startswith("-") or value.lower() == "none"):
        return [f"{flag}={value}"]
    return [flag, str(value)]


def _same_kinds(one: Any, other: Any) -> bool:
    """Whether two lists of values differ only in numbers, which then have flags."""
    if not isinstance(one, tuple) or not isinstance(other, tuple) or len(one) != len(other):
        return False
    translation = zip(one, other, strict=True)
    return all(is_dataclass(a) and type(a) is type(b) for a, b in translation)
