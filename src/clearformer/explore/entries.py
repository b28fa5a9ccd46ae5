"""One model that can be looked at: a run with its checkpoints, or weights of somebody else's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from clearformer import safe_files
from clearformer.build import outline
from clearformer.config import AnyModelConfig, RunConfig, run_from_json
from clearformer.explore.jobs import Worker
from clearformer.explore.runs import is_finite
from clearformer.explore.safe_text import clean
from clearformer.explore.subject import Subject
from clearformer.hub import importing
from clearformer.inference.packed_linear import quicken
from clearformer.runs import checkpoint, load, metrics
from clearformer.runs.checkpoint_choice import choose
from clearformer.safe_json import read_json, read_run_json

WEIGHTS = "weights"  # the only checkpoint of a folder that no run wrote
KNOWN_LOSSES = 500  # runs whose validation losses are remembered


class Entry:
    """One model that can be looked at: a run, or weights."""

    def __init__(self, id: str, path: Path, allow_bin: bool = False) -> None:
        self.id = id
        self.path = path
        self.allow_bin = allow_bin  # whether weights may be read from a pickle, as in `import`
        self.name = clean(path.resolve().name)
        self.stamp = changed(path / "config.json")
        self.worker = Worker(id)

    @property
    def is_run(self) -> bool:
        return looks_like_run(self.path)

    @property
    def is_own(self) -> bool:
        """Whether clearformer wrote it: then no link inside it is followed."""
        return self.is_run or os.path.lexists(self.path / "manifest.json")

    @cached_property
    def run_config(self) -> RunConfig:
        """Every setting of a run."""
        path = self.path / "config.json"
        try:
            return run_from_json(read_run_json(path))
        except RecursionError:
            raise ValueError(f"{path} is no config of a run: it is nested too deeply") from None

    @cached_property
    def config(self) -> AnyModelConfig:
        """What the model is, without its weights."""
        if self.is_own:
            return self.run_config.model
        return importing.config_of(self.path, allow_bin=self.allow_bin)

    @cached_property
    def parameters(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes; a tensor that is shared counts once."""
        return [(name, tuple(p.shape)) for name, p in outline(self.config).named_parameters()]

    @cached_property
    def tokenizer_kind(self) -> str | None:
        read = read_run_json if self.is_own else read_json
        try:
            document = read(self.path / "tokenizer.json")
        except ValueError:
            document = None
        kind = document.get("kind") if isinstance(document, dict) else None
        if kind is None and not self.is_run:
            known = ("tokenizer.json", "vocab.json", "vocab.txt")
            if self.path.is_dir() and not any((self.path / name).is_file() for name in known):
                return None
            return "wordpiece" if self.config.family == "bert" else "bpe"
        return clean(kind, 60) if isinstance(kind, str) else None

    def checkpoints(self) -> list[dict[str, Any]]:
        """The newest first, each with its loss if it was evaluated."""
        if not self.is_run:
            return [{"id": WEIGHTS, "step": None, "val_loss": None}]
        losses = self._losses()
        found = [
            {"id": f"step-{step}", "step": step, "val_loss": losses.get(step)}
            for step in sorted(self._steps(), reverse=True)
        ]
        return found

    def _steps(self) -> Iterator[int]:
        for step, each in checkpoint.numbered(self.path / "checkpoints"):
            if safe_files.is_folder(each) and safe_files.is_file(each / "manifest.json"):
                yield step

    def _losses(self) -> dict[int, float]:
        path = self.path / "metrics.jsonl"
        try:
            about = path.lstat()
        except OSError:
            return {}
        return _losses(path, about.st_size, about.st_mtime_ns)

    def default_checkpoint(self) -> str | None:
        """The one that every other verb opens; else the newest."""
        several = [each["id"] for each in self.checkpoints()]
        if not several or not self.is_run:
            return several[0] if several else None
        newest = self.path / "checkpoints" / several[0]
        try:
            numbers, config = (
                read_run_json(newest / name) for name in ("state.json", "config.json")
            )
            step = int(several[0].removeprefix("step-"))
            wanted = f"step-{choose(numbers, step, run_from_json(config).train.schedule).step}"
        except (ValueError, KeyError, TypeError, AttributeError):
            wanted = None
        return wanted if wanted in several else several[0]

    def open(self, checkpoint_id: str) -> Subject:
        """The model of one checkpoint, every file of it verified."""
        if not self.is_run:
            return self._open_weights()
        path = self.path / "checkpoints" / checkpoint_id
        model, config, tokenizer, _ = load.open_any(path)
        if "generate" in config.model.verbs:
            quicken(model)  # as `clearformer generate` has it, for the same text to the last bit
        return Subject(model, config.model, tokenizer, self.name)

    def _open_weights(self) -> Subject:
        if self.is_own:
            model, config, tokenizer, _ = load.open_any(self.path)
            return Subject(model, config.model, tokenizer, self.name)
        found = importing.read(self.path, allow_bin=self.allow_bin)
        return Subject(found.model(), found.config, found.tokenizer, self.name)


class Given(Entry):
    """A model that is there already, such as one being traced in a notebook."""

    def __init__(self, id: str, subject: Subject, config: AnyModelConfig) -> None:
        super().__init__(id, Path(id))
        self.subject = subject
        self.__dict__["config"] = config
        self.__dict__["tokenizer_kind"] = subject.tokenizer.kind if subject.tokenizer else None

    def open(self, checkpoint_id: str) -> Subject:
        return self.subject

    @property
    def is_run(self) -> bool:
        return False


def looks_like_run(path: Path) -> bool:
    """Whether a folder has what only a run has, be it sound or not."""
    return any(os.path.lexists(path / name) for name in ("checkpoints", "metrics.jsonl"))


@lru_cache(maxsize=KNOWN_LOSSES)
def _losses(path: Path, size: int, changed: int) -> dict[int, float]:
    """Validation losses by step; read again when the file has grown or changed."""
    try:
        found = metrics.read(path)
    except (OSError, ValueError):
        return {}
    return {
        r["step"]: float(r["validation_loss"])
        for r in found
        if r["event"] == "evaluation" and is_finite(r.get("validation_loss"))
    }


def changed(path: Path) -> int:
    """When a file was last written; 0 if there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
