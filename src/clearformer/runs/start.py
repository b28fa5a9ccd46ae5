"""Initial config of a run: from a preset, from a run to resume, or from a model to fine-tune."""

from __future__ import annotations

import glob
import os
from dataclasses import replace
from pathlib import Path

from clearformer.config import Classifier, DataConfig, GenerationDefaults, RunConfig, run_from_json
from clearformer.families import preset
from clearformer.families.recipes import going_on, recipe
from clearformer.safe_json import read_run_json

DEFAULT_PRESET = "modern-tiny"
TABLE_PRESET = "classifier-small"  # for a table, of which a model learns the labels
CLASSIFY = "classify"  # in place of a preset: a new head on the model of --from


def starting_config(
    name: str | None = None,
    source: Path | None = None,
    out: Path | None = None,
    resume: bool = False,
    table: bool = False,
) -> tuple[str, RunConfig]:
    """The name and the config of the run to resume in `out`, of the model to fine-tune in
    `source`, or of a preset; without a name, one for a text or for a `table`."""
    if resume and out is not None and (name is None or source is not None):
        saved = saved_config(out)
        if saved is not None:
            return name or saved.model.name, saved
    if source is not None:
        if name not in (None, CLASSIFY):
            raise ValueError(
                f"with --from the model is that of {source}: leave out {name!r}, or use classify"
            )
        config = finetune_config(source, classify=name == CLASSIFY)
        return name or config.model.name, config
    if name == CLASSIFY:
        raise ValueError("classify gives a trained model a new head: add --from RUN")
    if name is None:
        name = TABLE_PRESET if table else DEFAULT_PRESET
    return name, preset_config(name)


def config_in_file(path: Path) -> RunConfig:
    """The settings in the config.json of a run, or of the folder that holds it, to repeat it."""
    path = path / "config.json" if path.is_dir() else path
    if not os.path.lexists(path):
        raise ValueError(f"there is no {path}: give the config.json of a run")
    document = read_run_json(path)
    try:
        return run_from_json(document)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{path} cannot be read: {problem}") from None


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
    return config_in_file(path)


def finetune_config(source: Path, classify: bool = False) -> RunConfig:
    """The config that continues from the model in `source`, or gives it a classification head."""
    from clearformer.runs import finetune

    origin = finetune.read_origin(source)
    model, generation = origin.config.model, origin.config.generation
    if classify and "classify" not in model.verbs:
        pool = model.head.classifier_pool(causal=model.cache is not None)
        model = replace(model, head=Classifier(pool=pool))
        generation = GenerationDefaults()
    data, train = going_on(model, origin.tokenizer.kind, origin.tokenizer.size)
    return RunConfig(
        model=model, data=data, train=train, origin=origin.origin, generation=generation
    )


def with_absolute_paths(data: DataConfig) -> DataConfig:
    """The data with absolute paths, so that a run can resume from any folder."""
    from clearformer.data import CORPORA  # imported late: parsing a command needs no numpy

    def absolute(source: str) -> str:
        if source == "-" or source in CORPORA:
            return source
        if Path(source).exists() or glob.has_magic(source):
            return os.path.abspath(source)
        parts = source.split(",")  # the two sides of pairs
        exist = len(parts) > 1 and all(Path(part).exists() for part in parts)
        return ",".join(map(os.path.abspath, parts)) if exist else source

    validation = None if data.validation is None else absolute(data.validation)
    return replace(data, source=absolute(data.source), validation=validation)
