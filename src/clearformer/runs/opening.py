"""Opening a run: config, data and model, new or from the newest checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from clearformer.config import RunConfig, run_from_json
from clearformer.data import DataFolders
from clearformer.distributed.process_group import ProcessGroup
from clearformer.runs import checkpoint, contamination, finetune, trainer
from clearformer.runs.checkpoint import Checkpoint
from clearformer.runs.fingerprint import OWN, Builder, Model, of_own_builder, require_same
from clearformer.runs.load import Opened
from clearformer.runs.resume import continued
from clearformer.tasks import registry
from clearformer.tasks.task import LoadedTask
from clearformer.text import Tokenizer
from clearformer.text import from_json as tokenizer_from_json
from clearformer.text import sha256 as tokenizer_identity
from clearformer.training import device, recompute
from clearformer.training.label_smoothing import set_smoothing

if TYPE_CHECKING:
    from clearformer.runs.run import Run

Say = Callable[[str], None]


def newest_checkpoint(folder: Path, group: ProcessGroup, say: Say) -> Checkpoint | None:
    """The newest intact checkpoint; the main process looks for it, and all ranks use the same."""

    def find() -> Any:
        newest = checkpoint.newest(folder, say)
        return newest and (newest.folder.name, newest.step, dict(newest.manifest))

    found = group.on_main(find)
    if found is None:
        return None
    name, step, manifest = found
    if not (folder / name).is_dir():
        raise ValueError(
            f"rank {group.rank} does not see {folder / name}: the run's folder must lie where "
            f"every machine sees it"
        )
    return Checkpoint(folder / name, step, manifest)


def resolve_config(
    config: RunConfig | None, saved: Checkpoint | None, folder: Path, resume: bool, say: Say
) -> RunConfig:
    """The config of a new run, or that of the checkpoint with the changes that are allowed."""
    if saved is not None:
        if not resume:
            raise ValueError(
                f"{folder} already holds a run at step {saved.step}: add --resume to go on with "
                f"it, or choose another --out"
            )
        before = run_from_json(saved.json("config.json"))
        return before if config is None else continued(before, config, say)
    if config is None:
        raise ValueError(f"{folder} holds no run to resume: give a model and data")
    return config


def tokenizer_and_origin(
    config: RunConfig, saved: Checkpoint | None, make: Builder
) -> tuple[Tokenizer | None, Opened | None]:
    """The tokenizer, if it need not be learned, and the model that a new run is initialized from.

    A resumed run takes its tokenizer from the checkpoint: learning it again would take long, and
    its text may no longer be there.
    """
    if saved is not None:
        return tokenizer_from_json(saved.json("tokenizer.json")), None
    if config.origin is not None:
        origin = finetune.open_origin(config.origin, config, make)
        return origin.tokenizer, origin
    if config.train.embedding_std is not None:
        raise ValueError("train.embedding_std needs tables that were learned: add --from RUN")
    return None, None


def set_threads(wanted: int, say: Say) -> None:
    """Set the number of CPU threads, and say so if it is lower than asked for."""
    threads = device.set_threads(wanted)
    if threads < wanted:
        say(f"note: {wanted} threads are more than this machine has use for: {threads} are used")


def load_task(
    config: RunConfig, places: DataFolders, tokenizer: Tokenizer | None, group: ProcessGroup
) -> LoadedTask:
    """Load the task. The main process prepares data and tokenizer, the other ranks reuse both."""

    def load(learned: Any) -> LoadedTask:
        known = tokenizer if learned is None else tokenizer_from_json(learned)
        return registry.load(config, places, known)

    task = group.main_first(load, lambda task: task.tokenizer.to_json())
    # A rank may read another copy of a file, or the same one after it was changed.
    identities = group.gather(task.identity)
    other = next((i for i, each in enumerate(identities) if each != identities[0]), None)
    if other is not None:
        raise ValueError(
            f"rank {other} reads other data than rank 0: every rank must see the same files, "
            f"and nothing may change them while a run starts"
        )
    return task


def identity(
    task: LoadedTask,
    model: Model,
    make: Builder,
    saved: Checkpoint | None,
    origin: Opened | None,
) -> dict[str, Any]:
    """What a manifest records of data, tokenizer and builder; `model` is as it was built."""
    config = task.config
    facts = {"data": task.identity, "tokenizer": tokenizer_identity(task.tokenizer)}
    own = of_own_builder(model, config.model, make)
    if own is not None:
        facts[OWN] = own
    return facts | contamination.facts(
        task,
        None if origin is None else origin.found,
        {} if saved is None else saved.manifest,
        None if config.origin is None else config.origin.folder,
    )


def prepare_model(
    model: Model, config: RunConfig, saved: Checkpoint | None, origin: Opened | None
) -> None:
    """Apply to a freshly built model what the training settings ask for."""
    train = config.train
    if saved is not None:
        require_same(model, config.model, saved)
    if origin is not None:
        finetune.take_over(model, config.model, origin)
        if train.embedding_std is not None:
            finetune.scale_tables(model, train.embedding_std)
    if train.freeze is not None:
        finetune.freeze_body(model)
    set_smoothing(model, train.label_smoothing)
    recompute.apply(model, train.recompute)


def require_same_data(
    saved: Checkpoint, facts: Mapping[str, Any], folder: Path, allow_changed_data: bool, say: Say
) -> None:
    """Refuse data or a tokenizer that differs from that of the checkpoint."""
    for what in ("data", "tokenizer"):
        if saved.manifest.get(what) == facts[what]:
            continue
        if what != "data" or not allow_changed_data:
            raise ValueError(
                f"the {what} is not the one that {folder} was trained with: "
                f"put the old one back, or start a new run in another folder"
                + (", or go on with --allow-changed-data" if what == "data" else "")
            )
        say(
            f"note: the data is not what it was before step {saved.step}: the run goes on "
            f"with other samples"
        )


def environment(run: Run) -> dict[str, Any]:
    """What the last bits of a result depend on besides the config; recorded in the manifest."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "device": str(next(run.model.parameters()).device),
        "precision": run.precision,
        "compiled": trainer.should_compile(run),
        "world": run.group.world_size,
    }


def report_changes(saved: Checkpoint, now: Mapping[str, Any], say: Say) -> None:
    """Say what differs from the environment of the checkpoint, as far as it was recorded."""
    for name, value in now.items():
        if saved.manifest.get(name, value) != value:
            say(
                f"note: {name} was {saved.manifest.get(name)} and is {value}: "
                f"the run goes on, but not bit for bit"
            )
