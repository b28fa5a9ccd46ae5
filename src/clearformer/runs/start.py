"""Initial config of a run: from a preset, from a run to resume, or from a model to fine-tune."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from clearformer.config import (
    AnswerSpan,
    Classifier,
    DataConfig,
    GenerationDefaults,
    Head,
    ModelConfig,
    PairClassifier,
    RunConfig,
    TokenClassifier,
    run_from_json,
)
from clearformer.config.heads import Pool
from clearformer.families import preset
from clearformer.families.recipes import going_on, recipe
from clearformer.safe_json import read_run_json

DEFAULT_PRESET = "modern-tiny"


def _pool(model: ModelConfig) -> Pool:
    return model.head.classifier_pool(causal=model.cache is not None)


# In place of a preset: a new head on the model of --from.
NEW_HEADS: dict[str, Callable[[ModelConfig], Head]] = {
    "classify": lambda model: Classifier(pool=_pool(model)),
    "classify-pairs": lambda model: PairClassifier(pool=_pool(model)),
    "label": lambda model: TokenClassifier(),
    "answer": lambda model: AnswerSpan(),
}


def starting_config(
    name: str | None = None,
    source: Path | None = None,
    out: Path | None = None,
    resume: bool = False,
) -> tuple[str, RunConfig]:
    """The name and the config of the run to resume in `out`, of the model to fine-tune in
    `source`, or of a preset."""
    if resume and out is not None and (name is None or source is not None):
        saved = saved_config(out)
        if saved is not None:
            return name or saved.model.name, saved
    if source is not None:
        if name is not None and name not in NEW_HEADS:
            *first, last = NEW_HEADS
            raise ValueError(
                f"with --from the model is that of {source}: leave out {name!r}, or use "
                f"{', '.join(first)} or {last} for a new head"
            )
        config = finetune_config(source, name)
        return name or config.model.name, config
    if name in NEW_HEADS:
        raise ValueError(f"{name} gives a trained model a new head: add --from RUN")
    name = DEFAULT_PRESET if name is None else name
    return name, preset_config(name)


def run_folder(name: str, data: DataConfig) -> Path:
    """The folder of a run by default: runs/NAME-DATA."""
    return Path("runs") / f"{name}-{Path(data.source).stem}"


def preset_config(name: str) -> RunConfig:
    """The config of a preset with its recipe."""
    model = preset(name)
    data, train = recipe(model)
    return RunConfig(model=model, data=data, train=train)


def saved_config(folder: Path) -> RunConfig | None:
    """The config in this run folder, if there is one."""
    path = folder / "config.json"
    if not os.path.lexists(path):
        return None
    document = read_run_json(path)
    try:
        return run_from_json(document)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{path} cannot be read: {problem}") from None


def finetune_config(source: Path, new_head: str | None = None) -> RunConfig:
    """The config that continues from the model in `source`, or gives it a head of NEW_HEADS."""
    from clearformer.runs import finetune

    origin = finetune.read_origin(source)
    model, generation = origin.config.model, origin.config.generation
    if new_head is not None:
        head = NEW_HEADS[new_head](model)
        if model.head.noun != head.noun:  # otherwise it goes on with the head that it has
            model = replace(model, head=head)
            generation = GenerationDefaults()
    data, train = going_on(model, origin.tokenizer.kind, origin.tokenizer.size)
    return RunConfig(
        model=model, data=data, train=train, origin=origin.origin, generation=generation
    )


def with_absolute_paths(data: DataConfig) -> DataConfig:
    """The data with absolute paths, so that a run can resume from any folder."""
    from clearformer.data import CORPORA  # imported late: parsing a command needs no numpy

    def absolute(source: str) -> str:
        if source in ("", "-") or source in CORPORA:
            return source
        if Path(source).exists() or glob.has_magic(source):
            return os.path.abspath(source)
        parts = source.split(",")  # the two sides of pairs
        exist = len(parts) > 1 and all(Path(part).exists() for part in parts)
        return ",".join(map(os.path.abspath, parts)) if exist else source

    validation = None if data.validation is None else absolute(data.validation)
    return replace(data, source=absolute(data.source), validation=validation)
