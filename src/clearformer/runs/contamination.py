"""How much of what a model is evaluated on it was trained on.

A checkpoint says what its run was trained on: the settings of the data, the size and hash of the
training part, and the same of the runs that it began from. So a copy of a file is recognised by its
content, also where the file itself is gone; everything else is compared with the training data, if
it can be read without a download. Where nothing can be known, nothing is said.
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
from clearformer.tasks.registry import task_of
from clearformer.tasks.task import LoadedTask, Material

TRAINED, BEGAN = "trained_on", "began_from"  # in a manifest
FEW = 0.1  # of the pieces of a text that may stand in another one by chance


@dataclass(frozen=True)
class Training:
    """What a run was trained on, by its settings and by its content."""

    run: str | None  # the folder of a run that this one began from; none: this one
    config: RunConfig
    size: int | None = None  # bytes of a text; none: not recorded, or no text
    sha256: str | None = None

    def to_json(self) -> dict[str, Any]:
        content = {"size": self.size, "sha256": self.sha256}
        return {"run": self.run, "config": to_json(self.config), **content}


def lineage(found: Checkpoint, config: RunConfig, own: str | None = None) -> list[Training]:
    """What the run of a checkpoint was trained on, and the runs that it began from."""
    told = found.manifest.get(TRAINED)
    told = told if isinstance(told, dict) else {}
    # Of step 0 it has learned nothing yet: it was imported, or begins from another.
    this = [Training(own, config, told.get("size"), told.get("sha256"))] if found.step else []
    recorded = found.manifest.get(BEGAN)
    if isinstance(recorded, list):
        return [*this, *(each for entry in recorded if (each := _read(entry)) is not None)]
    if config.origin is None:
        return this
    try:  # a run from before its beginnings were recorded
        before = load.best_checkpoint(Path(config.origin.folder))
        origin = run_from_json(before.json("config.json"))
    except (ValueError, OSError):
        return this
    # One step back, and not further: folders may name one another.
    return [*this, Training(config.origin.folder, origin)]


def _read(entry: Any) -> Training | None:
    try:
        config = run_from_json(entry["config"])
        return Training(str(entry["run"]), config, entry.get("size"), entry.get("sha256"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def remarks(
    trained: list[Training], evaluated: Material, places: data.DataFolders, *, held_back: bool
) -> list[str]:
    """A sentence for each run that was trained on some of `evaluated`.

    `held_back` says that it is what the run itself did not learn from.
    """
    found = []
    for each in trained:
        if held_back and each.run is None:
            continue
        try:
            share = shared(each, evaluated, places)
        except (ValueError, OSError):
            continue  # the data is gone, or is no longer what it was
        if share is None:
            continue
        if each.run is None:
            advice = "for an honest figure evaluate what it held back: leave out --data and --part"
            found.append(f"this run was trained on {share}; {advice}")
        else:
            found.append(f"this run began from {each.run}, which was trained on {share}")
    return found


def shared(training: Training, evaluated: Material, places: data.DataFolders) -> str | None:
    """How much of `evaluated` a run was trained on, in words; None: nothing, or nobody knows."""
    if isinstance(evaluated, data.TextSource) and _begins_with(evaluated, training):
        assert training.size is not None
        return _share(min(1.0, training.size / evaluated.size), "this text")
    learned = _material(training, places)
    if learned is None:
        return None
    if isinstance(learned, tuple) and isinstance(evaluated, tuple):
        known = {text.strip() for text in learned}
        count = sum(text.strip() in known for text in evaluated)
        every = "all" if count == len(evaluated) else f"{count:,}"
        return f"{every} of these {len(evaluated):,} texts" if count else None
    share = data.repeated_text(_joined(learned), _joined(evaluated))
    what = "this text" if isinstance(evaluated, data.TextSource) else "these texts"
    return f"about {_share(share, what)}" if share > FEW else None


def _begins_with(evaluated: data.TextSource, training: Training) -> bool:
    """Whether a text begins with the training part of a run, or is a beginning of it."""
    size, digest = training.size, training.sha256
    if not isinstance(size, int) or isinstance(size, bool) or size < 1 or not evaluated.size:
        return False
    # What is evaluated may be the beginning of a file alone: the rest of the file is there too.
    whole = data.TextSource(evaluated.name, evaluated.pieces, evaluated.start, None)
    return whole.size >= size and whole.part(0, size).sha256 == digest


def _share(share: float, what: str) -> str:
    return f"all of {what}" if share >= 1 else f"{share:.0%} of {what}".replace("%", " %")


def _material(training: Training, places: data.DataFolders) -> Material | None:
    """The training part of a run, if it can be read again, and still is what it was."""
    config = training.config
    if not _is_there(config.data.source):
        return None
    folders = [each for each in (places.folder, places.cache) if each is not None and each.is_dir()]
    for here in (*folders, None):
        try:
            found = task_of(config.model).training_material(config, data.DataFolders(here, None))
        except ValueError:
            continue  # not in this folder; without a cache nothing is downloaded
        if isinstance(found, data.TextSource) and training.sha256 not in (None, found.sha256):
            return None
        return found
    return None


def _is_there(source: str) -> bool:
    """Whether a source is a corpus or files: standard input and pipes cannot be read again."""
    if source in data.CORPORA or glob.has_magic(source):
        return True
    if Path(source).is_file() or Path(source).is_dir():
        return True
    return all(Path(each.strip()).is_file() for each in source.split(","))


def _joined(found: Material) -> data.TextSource:
    if isinstance(found, data.TextSource):
        return found
    joined = "\n".join(found).encode("utf-8", "surrogatepass")
    return data.TextSource("texts", (in_memory("texts", joined),))


def facts(
    task: LoadedTask,
    origin: Checkpoint | None,
    before: Mapping[str, Any],
    folder_name: str | None,
) -> dict[str, Any]:
    """What a checkpoint records of its training: `before` is the manifest that a run goes on
    from, `origin` the checkpoint in `folder_name` that a new one begins from."""
    found: dict[str, Any] = {}
    if (own := task.text_identity()) is not None:
        found[TRAINED] = own
    if BEGAN in before:
        found[BEGAN] = before[BEGAN]
    elif origin is not None:
        config = run_from_json(origin.json("config.json"))
        found[BEGAN] = [each.to_json() for each in lineage(origin, config, folder_name)]
    return found
