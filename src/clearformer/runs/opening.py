"""Opening a run: config, data and model, new or from the newest checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from clearformer.adapters.attach import attach
from clearformer.config import Adapter, RunConfig, run_from_json
from clearformer.data import DataFolders
from clearformer.distributed.process_group import ProcessGroup
from clearformer.runs import adapter_base, checkpoint, contamination, finetune, state, trainer
from clearformer.runs.checkpoint import Checkpoint
from clearformer.runs.fingerprint import BUILDER, Builder, Model, custom_fingerprint, require_same
from clearformer.runs.load import OpenedAny
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

    newest = group.on_main(find)
    if newest is None:
        return None
    name, step, manifest = newest
    if not (folder / name).is_dir():
        raise ValueError(
            f"rank {group.rank} cannot access {folder / name}: the run folder must be on a file "
            f"system that all machines share"
        )
    return Checkpoint(folder / name, step, manifest)


def resolve_config(
    config: RunConfig | None, saved: Checkpoint | None, folder: Path, resume: bool, say: Say
) -> RunConfig:
    """The config of a new run, or that of the checkpoint with the changes that are allowed."""
    if saved is not None:
        if not resume:
            raise ValueError(
                f"{folder} already holds a run at step {saved.step}: add --resume to continue it, "
                f"or choose another --out"
            )
        before = run_from_json(saved.json("config.json"))
        return before if config is None else continued(before, config, say)
    if config is None:
        raise ValueError(f"{folder} holds no run to resume: give a model and data")
    return config


def tokenizer_and_origin(
    config: RunConfig, saved: Checkpoint | None, make: Builder
) -> tuple[Tokenizer | None, OpenedAny | None]:
    """The tokenizer, unless it is to be trained, and the model that a new run is fine-tuned from.

    A resumed run loads its tokenizer from the checkpoint: training it again would take long, and
    the text may be gone. An adapter needs its model then too.
    """
    if saved is not None:
        adapted = config.train.adapter is not None
        origin = adapter_base.open_base(config, saved.folder, make) if adapted else None
        return tokenizer_from_json(saved.json("tokenizer.json")), origin
    if config.origin is not None:
        origin = finetune.open_origin(config.origin, config, make)
        return origin.tokenizer, origin
    if config.train.adapter is not None:
        raise ValueError("train.adapter changes a trained model: add --from RUN")
    if config.train.embedding_std is not None:
        raise ValueError("train.embedding_std needs a pretrained embedding: add --from RUN")
    return None, None


def set_threads(requested: int, say: Say) -> None:
    """Set the number of CPU threads, with a note if it is limited."""
    threads = device.set_threads(requested)
    if threads < requested:
        say(f"note: {requested} threads are too many for this machine: {threads} are used")


def load_task(
    config: RunConfig, folders: DataFolders, tokenizer: Tokenizer | None, group: ProcessGroup
) -> LoadedTask:
    """Load the task. The main process prepares data and tokenizer, the other ranks reuse both."""

    def load(learned: Any) -> LoadedTask:
        use = tokenizer if learned is None else tokenizer_from_json(learned)
        return registry.load(config, folders, use)

    task = group.main_first(load, lambda task: task.tokenizer.to_json())
    # A rank may read another copy of a file, or the same one after it was changed.
    identities = group.gather(task.identity)
    other = next((i for i, each in enumerate(identities) if each != identities[0]), None)
    if other is not None:
        raise ValueError(
            f"rank {other} reads other data than rank 0: every rank must read the same files, and "
            f"they must not change while a run starts"
        )
    return task


def identity(
    task: LoadedTask,
    model: Model,
    make: Builder,
    saved: Checkpoint | None,
    origin: OpenedAny | None,
) -> dict[str, Any]:
    """What a manifest records about data, tokenizer and builder; `model` is newly built."""
    config = task.config
    facts = {"data": task.identity, "tokenizer": tokenizer_identity(task.tokenizer)}
    own = custom_fingerprint(model, config.model, make)
    if own is not None:
        facts[BUILDER] = own
    return facts | contamination.facts(
        task,
        None if origin is None or saved is not None else origin.checkpoint,
        {} if saved is None else saved.manifest,
        None if config.origin is None else config.origin.folder,
    )


def prepare_model(
    model: Model, config: RunConfig, saved: Checkpoint | None, origin: OpenedAny | None
) -> tuple[Adapter | None, state.SavedWeights]:
    """Apply the training settings to a newly built model.

    The adapter that was put into it, and which weights its checkpoints hold.
    """
    train, adapter, weights = config.train, None, state.WHOLE
    if saved is not None:
        require_same(model, config.model, saved)
    if origin is not None:
        new = finetune.load_pretrained(model, config.model, origin)
        if train.embedding_std is not None:
            finetune.rescale_embeddings(model, train.embedding_std)
        if train.adapter is not None:
            adapter = adapter_base.resolved(train.adapter, origin.checkpoint)
            attach(model, adapter, seed=train.seed, learning=new)
            weights = state.ADAPTER.keeping(new)
    if train.freeze is not None:
        finetune.freeze_body(model)
    set_smoothing(model, train.label_smoothing)
    recompute.apply(model, train.recompute)
    return adapter, weights


def require_same_data(
    saved: Checkpoint, facts: Mapping[str, Any], folder: Path, allow_changed_data: bool, say: Say
) -> None:
    """ValueError for data or a tokenizer that differs from that of the checkpoint."""
    for part in ("data", "tokenizer"):
        if saved.manifest.get(part) == facts[part]:
            continue
        if part != "data" or not allow_changed_data:
            raise ValueError(
                f"the {part} is not the one that {folder} was trained with: "
                f"restore the old one, or start a new run in another folder"
                + (", or continue with --allow-changed-data" if part == "data" else "")
            )
        say(
            f"note: the data has changed since step {saved.step}: the run continues with other "
            f"samples"
        )


def environment(run: Run) -> dict[str, Any]:
    """What bit-exact results depend on besides the config; recorded in the manifest."""
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
    """Report differences from the recorded environment of the checkpoint."""
    for name, value in now.items():
        if saved.manifest.get(name, value) != value:
            say(
                f"note: {name} was {saved.manifest.get(name)} and is {value}: "
                f"the run continues, but not bit for bit"
            )
