"""One model in the library: a run with its checkpoints, or a folder of weights."""

from __future__ import annotations

import os
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from clearformer import safe_files
from clearformer.builder import outline
from clearformer.config import AnyModelConfig, RunConfig, run_from_json
from clearformer.explore.runs import is_finite
from clearformer.explore.safe_text import clean
from clearformer.explore.traced_model import TracedModel
from clearformer.explore.worker import Worker
from clearformer.hub import importing
from clearformer.inference.packed_linear import use_fast_products
from clearformer.runs import checkpoint, load, metrics
from clearformer.runs.checkpoint_choice import choose
from clearformer.safe_json import read_json, read_run_json

WEIGHTS = "weights"  # the id of the only checkpoint of a folder that is not a run
CACHED_LOSSES = 500  # runs


class ModelEntry:
    """A model that can be loaded: a run, or weights."""

    def __init__(self, id: str, path: Path, allow_bin: bool = False) -> None:
        self.id = id
        self.path = path
        self.allow_bin = allow_bin  # whether weights may be read from a pickle, as in `import`
        self.name = clean(path.resolve().name)
        self.config_time = modification_time(path / "config.json")
        self.worker = Worker(id)

    @property
    def is_run(self) -> bool:
        return has_run_files(self.path)

    @property
    def is_native(self) -> bool:
        """Whether clearformer wrote it: then no symbolic link inside it is followed."""
        return self.is_run or os.path.lexists(self.path / "manifest.json")

    @cached_property
    def run_config(self) -> RunConfig:
        path = self.path / "config.json"
        try:
            return run_from_json(read_run_json(path))
        except RecursionError:
            raise ValueError(
                f"{path} is not the config of a run: it is nested too deeply"
            ) from None

    @cached_property
    def config(self) -> AnyModelConfig:
        if self.is_native:
            return self.run_config.model
        return importing.read_model_config(self.path, allow_bin=self.allow_bin)

    @cached_property
    def parameters(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes; a shared tensor counts once."""
        return [(name, tuple(p.shape)) for name, p in outline(self.config).named_parameters()]

    @cached_property
    def tokenizer_kind(self) -> str | None:
        read = read_run_json if self.is_native else read_json
        try:
            document = read(self.path / "tokenizer.json")
        except ValueError:
            document = None
        kind = document.get("kind") if isinstance(document, dict) else None
        if kind is None and not self.is_run:
            files = ("tokenizer.json", "vocab.json", "vocab.txt")
            if self.path.is_dir() and not any((self.path / name).is_file() for name in files):
                return None
            return "wordpiece" if self.config.family == "bert" else "bpe"
        return clean(kind, 60) if isinstance(kind, str) else None

    def checkpoints(self) -> list[dict[str, Any]]:
        """The newest first, each with its validation loss if it was evaluated."""
        if not self.is_run:
            return [{"id": WEIGHTS, "step": None, "val_loss": None}]
        losses = self._losses()
        steps = [
            step
            for step, folder in checkpoint.numbered(self.path / "checkpoints")
            if safe_files.is_folder(folder) and safe_files.is_file(folder / "manifest.json")
        ]
        return [
            {"id": f"step-{step}", "step": step, "val_loss": losses.get(step)}
            for step in sorted(steps, reverse=True)
        ]

    def _losses(self) -> dict[int, float]:
        path = self.path / "metrics.jsonl"
        try:
            status = path.lstat()
        except OSError:
            return {}
        return _validation_losses(path, status.st_size, status.st_mtime_ns)

    def default_checkpoint(self) -> str | None:
        """The checkpoint that the commands open by default; otherwise the newest."""
        ids = [each["id"] for each in self.checkpoints()]
        if not ids or not self.is_run:
            return ids[0] if ids else None
        newest = self.path / "checkpoints" / ids[0]
        try:
            run_state = read_run_json(newest / "state.json")
            schedule = run_from_json(read_run_json(newest / "config.json")).train.schedule
            best = choose(run_state, int(ids[0].removeprefix("step-")), schedule).step
        except (ValueError, KeyError, TypeError, AttributeError):
            return ids[0]
        return f"step-{best}" if f"step-{best}" in ids else ids[0]

    def load(self, checkpoint_id: str) -> TracedModel:
        """The model of one checkpoint; every file of it is verified."""
        if not self.is_native:
            imported = importing.import_checkpoint(self.path, allow_bin=self.allow_bin)
            return TracedModel(
                imported.model(),
                imported.config,
                imported.tokenizer,
                self.name,
                imported.generation,
            )
        path = self.path / "checkpoints" / checkpoint_id if self.is_run else self.path
        module, config, tokenizer, _ = load.open_any(path)
        if self.is_run and "generate" in config.model.verbs:
            use_fast_products(module)  # as in `clearformer generate`, for bitwise the same text
        return TracedModel(module, config.model, tokenizer, self.name, config.generation)


class InMemoryEntry(ModelEntry):
    """A model that is loaded already, such as one that is traced in a notebook."""

    def __init__(self, id: str, model: TracedModel, config: AnyModelConfig) -> None:
        super().__init__(id, Path(id))
        self.model = model
        self.__dict__["config"] = config
        self.__dict__["tokenizer_kind"] = model.tokenizer.kind if model.tokenizer else None

    def load(self, checkpoint_id: str) -> TracedModel:
        return self.model

    @property
    def is_run(self) -> bool:
        return False


def has_run_files(path: Path) -> bool:
    """Whether a folder has files that only a run has, be they valid or not."""
    return any(os.path.lexists(path / name) for name in ("checkpoints", "metrics.jsonl"))


@lru_cache(maxsize=CACHED_LOSSES)
def _validation_losses(path: Path, size: int, modified: int) -> dict[int, float]:
    """Validation losses by step; `size` and `modified` invalidate the cache."""
    try:
        records = metrics.read(path)
    except (OSError, ValueError):
        return {}
    return {
        r["step"]: float(r["validation_loss"])
        for r in records
        if r["event"] == "evaluation" and is_finite(r.get("validation_loss"))
    }


def modification_time(path: Path) -> int:
    """In nanoseconds; 0 if there is no such file."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
