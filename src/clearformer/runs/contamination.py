"""Contamination: how much of the evaluation data was in the training data.

A checkpoint records its training data: the data settings, the size and hash of the training part,
and the same for the runs that it was fine-tuned from. A copy of a file is therefore recognised by
its content, even if the file is gone. Other data is compared with the training data, if that can
be read without a download.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearformer import data
from clearformer.config import RunConfig, run_from_json, to_json
from clearformer.data.texts import in_memory
from clearformer.runs import load
from clearformer.runs.checkpoint import Checkpoint
from clearformer.tasks.registry import task_of_run
from clearformer.tasks.task import LoadedTask, Material

TRAINED, BEGAN = "trained_on", "began_from"  # keys of a manifest
CHANCE_OVERLAP = 0.1  # share of a text that may occur in another one by chance


@dataclass(frozen=True)
class Training:
    """Training data of a run: its settings, and the size and hash of its content."""

    run: str | None  # folder of the run; None: the evaluated run itself
    config: RunConfig
    size: int | None = None  # bytes of the text; None: not recorded, or a table
    sha256: str | None = None

    def to_json(self) -> dict[str, Any]:
        content = {"size": self.size, "sha256": self.sha256}
        return {"run": self.run, "config": to_json(self.config), **content}


def lineage(saved: Checkpoint, config: RunConfig, run: str | None = None) -> list[Training]:
    """Training data of a checkpoint's run, and of the runs that it was fine-tuned from."""
    content = saved.manifest.get(TRAINED)
    content = content if isinstance(content, dict) else {}
    # At step 0 it was not trained yet: it was imported, or is about to be fine-tuned.
    this = [Training(run, config, content.get("size"), content.get("sha256"))] if saved.step else []
    origins = saved.manifest.get(BEGAN)
    if isinstance(origins, list):
        return [*this, *(each for entry in origins if (each := _parse(entry)) is not None)]
    if config.origin is None:
        return this
    try:  # an older run, which did not record the data of its origin
        before = load.best_checkpoint(Path(config.origin.folder))
        origin = run_from_json(before.json("config.json"))
    except (ValueError, OSError):
        return this
    # Only one step back, since folders may refer to each other.
    return [*this, Training(config.origin.folder, origin)]


def _parse(entry: Any) -> Training | None:
    try:
        config = run_from_json(entry["config"])
        return Training(str(entry["run"]), config, entry.get("size"), entry.get("sha256"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def notes(
    trained: list[Training], evaluated: Material, folders: data.DataFolders, *, held_back: bool
) -> list[str]:
    """A sentence for each run that was trained on some of `evaluated`.

    With `held_back`, it is the validation part of the run itself.
    """
    sentences = []
    for each in trained:
        if held_back and each.run is None:
            continue
        try:
            share = shared(each, evaluated, folders)
        except (ValueError, OSError):
            continue  # the data is gone, or has changed
        if share is None:
            continue
        if each.run is None:
            advice = "evaluate its validation part instead: leave out --data and --part"
            sentences.append(f"this run was trained on {share}; {advice}")
        else:
            sentences.append(
                f"this run was fine-tuned from {each.run}, which was trained on {share}"
            )
    return sentences


def shared(training: Training, evaluated: Material, folders: data.DataFolders) -> str | None:
    """How much of `evaluated` a run was trained on, in words; None if nothing, or unknown."""
    if isinstance(evaluated, data.TextSource) and _begins_with(evaluated, training):
        assert training.size is not None
        return _share(min(1.0, training.size / evaluated.size), "this text")
    material = _material(training, folders)
    if material is None:
        return None
    if isinstance(material, tuple) and isinstance(evaluated, tuple):
        training_texts = {text.strip() for text in material}
        count = sum(text.strip() in training_texts for text in evaluated)
        every = "all" if count == len(evaluated) else f"{count:,}"
        return f"{every} of these {len(evaluated):,} texts" if count else None
    share = data.repeated_text(_joined(material), _joined(evaluated))
    noun = "this text" if isinstance(evaluated, data.TextSource) else "these texts"
    return f"about {_share(share, noun)}" if share > CHANCE_OVERLAP else None


def _begins_with(evaluated: data.TextSource, training: Training) -> bool:
    """Whether a text begins with the training part of a run, or is a beginning of it."""
    size, digest = training.size, training.sha256
    if not isinstance(size, int) or isinstance(size, bool) or size < 1 or not evaluated.size:
        return False
    # The evaluated text may be the beginning of a file: compare with the full file.
    full_text = data.TextSource(evaluated.name, evaluated.pieces, evaluated.start, None)
    return full_text.size >= size and full_text.part(0, size).sha256 == digest


def _share(share: float, noun: str) -> str:
    return f"all of {noun}" if share >= 1 else f"{share:.0%} of {noun}".replace("%", " %")


def _material(training: Training, folders: data.DataFolders) -> Material | None:
    """The training part of a run, if it can be read and has not changed."""
    config = training.config
    if not _is_there(config.data.source):
        return None
    existing = [each for each in (folders.folder, folders.cache) if each and each.is_dir()]
    for folder in (*existing, None):
        try:
            material = task_of_run(config).training_material(config, data.DataFolders(folder, None))
        except ValueError:
            continue  # not in this folder; without a cache nothing is downloaded
        if isinstance(material, data.TextSource) and training.sha256 not in (None, material.sha256):
            return None
        return material
    return None


def _is_there(source: str) -> bool:
    """Whether a source is a corpus or files; standard input and pipes cannot be read again."""
    if source in data.CORPORA or glob.has_magic(source):
        return True
    if Path(source).is_file() or Path(source).is_dir():
        return True
    return all(Path(each.strip()).is_file() for each in source.split(","))


def _joined(material: Material) -> data.TextSource:
    if isinstance(material, data.TextSource):
        return material
    joined = "\n".join(material).encode("utf-8", "surrogatepass")
    return data.TextSource("texts", (in_memory("texts", joined),))


def facts(
    task: LoadedTask, origin: Checkpoint | None, before: Mapping[str, Any], folder_name: str | None
) -> dict[str, Any]:
    """What a manifest records about the training data.

    `before` is the manifest of the checkpoint that a run resumes from, `origin` the checkpoint in
    `folder_name` that a new run is fine-tuned from.
    """
    result: dict[str, Any] = {}
    if (identity := task.text_identity()) is not None:
        result[TRAINED] = identity
    if BEGAN in before:
        result[BEGAN] = before[BEGAN]
    elif origin is not None:
        config = run_from_json(origin.json("config.json"))
        result[BEGAN] = [each.to_json() for each in lineage(origin, config, folder_name)]
    return result
