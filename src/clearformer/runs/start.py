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
    MultiLabelClassifier,
    PairClassifier,
    Regressor,
    RunConfig,
    TextTask,
    TokenClassifier,
    run_from_json,
)
from clearformer.config.heads import Pool
from clearformer.did_you_mean import nearest
from clearformer.families import preset
from clearformer.families.recipes import going_on, own_data, recipe, without_smoothing
from clearformer.safe_json import read_run_json
from clearformer.text.chat_template import ChatTemplate

DEFAULT_PRESET = "modern-tiny"
TABLE_PRESET = "classifier-small"  # for a table, of which a model learns the labels
CLASSIFY = "classify"  # in place of a preset: a new head on the model of --from
CHAT = "chat"  # in place of a preset: conversations for the model of --from


def starting_config(
    name: str | None = None,
    source: Path | None = None,
    out: Path | None = None,
    resume: bool = False,
    table: bool = False,
    task: TextTask | None = None,
) -> tuple[str, RunConfig]:
    """The name and the config of the run to resume in `out`, of the model to fine-tune in
    `source`, or of a preset; without a name, one for a text or for a `table`. `task` is what is
    predicted of a text, if that is not what the model predicts anyway."""
    found, config = _starting_config(name, source, out, resume, table or task is not None)
    return found, with_task(config, task)


def _starting_config(
    name: str | None, source: Path | None, out: Path | None, resume: bool, table: bool
) -> tuple[str, RunConfig]:
    if resume and out is not None and (name is None or source is not None):
        saved = saved_config(out)
        if saved is not None:
            return name or saved.model.name, saved
    if source is not None:
        if name is not None and name not in ADAPTED:
            *first, last = ADAPTED
            raise ValueError(
                f"with --from the model is that of {source}: leave out {name!r}, or use "
                f"{', '.join(first)} or {last}"
            )
        config = finetune_config(source, name)
        return name or config.model.name, config
    if name == CHAT:
        raise ValueError("chat teaches a trained model to answer: add --from RUN")
    if name in ADAPTED:
        raise ValueError(f"{name} gives a trained model a new head: add --from RUN")
    if name is None:
        name = TABLE_PRESET if table else DEFAULT_PRESET
    return name, preset_config(name)


def with_task(config: RunConfig, task: TextTask | None) -> RunConfig:
    """The config with a head that predicts a class, several labels, or a number of a text."""
    head = config.model.head
    if task is None or head.text_task == task:
        return config
    if task not in TEXT_TASKS:
        raise ValueError(f"there is no task {task!r:.40}: {nearest(str(task), TEXT_TASKS)}")
    adapted = CLASSIFY if task == "classes" else task
    if head.text_task is None or head.two_texts:
        raise ValueError(
            f"task is {task!r}, but {config.model.name} is {config.model.noun}: use "
            f"classifier-small or another classifier, or train {adapted} "
            f"--from RUN"
        )
    learned = head.meaning not in (None, TEXT_TASKS["regression"]("mean").meaning)
    if learned or config.origin is not None:
        raise ValueError(
            f"task is {task!r}, but this run has {config.model.noun}: leave it out, or start anew "
            f"with train {adapted} --from RUN"
        )
    model = replace(config.model, head=TEXT_TASKS[task](head.pool or "mean"))
    data, train = own_data(config.data, model), without_smoothing(config.train, model)
    return replace(config, model=model, data=data, train=train)


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


def finetune_config(source: Path, name: str | None = None) -> RunConfig:
    """The config that continues from the model in `source`, or adapts it to another task."""
    from clearformer.runs import finetune

    origin = finetune.read_origin(source)
    before = replace(origin.config, origin=origin.origin)
    adapted = before if name is None else ADAPTED[name](before, source)
    data, train = going_on(adapted.model, origin.tokenizer.kind, origin.tokenizer.size)
    if name == CHAT:
        data = replace(data, form="conversations", source="conversations.jsonl")
        train = replace(train, epochs=3)
    return replace(adapted, data=data, train=train)


def _with_head(make: Callable[[Pool], Head]) -> Callable[[RunConfig, Path], RunConfig]:
    """Give a model another head, unless it has one of this kind; `make` gets how it pools."""

    def adapt(config: RunConfig, source: Path) -> RunConfig:
        model = config.model
        head = make(model.head.classifier_pool(causal=model.cache is not None))
        if model.noun == head.noun:
            return config
        model = model.with_head(head, source)
        return replace(config, model=model, generation=GenerationDefaults())

    return adapt


def _with_template(config: RunConfig, source: Path) -> RunConfig:
    """The generator with a chat template: its own, or a plain one."""
    config.model.require_verb("generate", source)
    if config.model.memory is not None:
        raise ValueError(
            f"{source} is a Transformer-XL, whose memory would mix conversations: use another "
            f"generator"
        )
    generation = config.generation
    template = generation.chat_template or ChatTemplate()
    return replace(config, generation=replace(generation, chat_template=template))


TEXT_TASKS: dict[TextTask, Callable[[Pool], Head]] = {
    "classes": lambda pool: Classifier(pool=pool),
    "multi-label": lambda pool: MultiLabelClassifier(pool=pool),
    "regression": lambda pool: Regressor(pool=pool),
}
# What may stand in place of a preset, with --from.
ADAPTED: dict[str, Callable[[RunConfig, Path], RunConfig]] = {
    CLASSIFY: _with_head(TEXT_TASKS["classes"]),
    "multi-label": _with_head(TEXT_TASKS["multi-label"]),
    "regression": _with_head(TEXT_TASKS["regression"]),
    "classify-pairs": _with_head(lambda pool: PairClassifier(pool=pool)),
    "label": _with_head(lambda pool: TokenClassifier()),
    "answer": _with_head(lambda pool: AnswerSpan()),
    CHAT: _with_template,
}


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
    template = None if data.template is None else absolute(data.template)
    return replace(data, source=absolute(data.source), validation=validation, template=template)
