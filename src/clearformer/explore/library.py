"""The library of models: runs, checkpoints and folders of weights, found and loaded.

A client names a model by an id from the server, never by a path, and files are opened only below
the folders that the user named.
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from clearformer import safe_files
from clearformer.config import AnyModelConfig
from clearformer.explore.limits import MAX_LOADED_MODELS
from clearformer.explore.model_entry import ModelEntry, has_run_files, modification_time
from clearformer.explore.recording import PartLayer, blocks
from clearformer.explore.safe_text import clean
from clearformer.explore.stages import all_finite
from clearformer.explore.traced_model import TracedModel
from clearformer.http_server.errors import Problem, unknown
from clearformer.runs import metrics

MAX_ENTRIES = 500
WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory, with the entry whose worker must run every call on it."""

    entry: ModelEntry
    checkpoint: str
    model: TracedModel
    view_cache: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def config(self) -> AnyModelConfig:
        assert self.model.config is not None
        return self.model.config

    @cached_property
    def nonfinite(self) -> dict[PartLayer | None, tuple[int, int]]:
        """NaN and infinities among the parameters by part and layer; None: outside the layers."""
        module = self.model.module
        counts: dict[PartLayer | None, tuple[int, int]] = {
            (part, layer): _count_nonfinite(block.parameters())
            for part, layer, block in blocks(module)
        }
        in_blocks = {id(p) for _, _, block in blocks(module) for p in block.parameters()}
        counts[None] = _count_nonfinite(p for p in module.parameters() if id(p) not in in_blocks)
        return {key: both for key, both in counts.items() if any(both)}


class Library:
    """All models below the given folders; runs that appear later are found too."""

    def __init__(
        self, folders: Sequence[Path], extra: Sequence[ModelEntry] = (), *, allow_bin: bool = False
    ) -> None:
        self.folders = [Path(each) for each in folders]
        self.allow_bin = allow_bin
        self.entries = {entry.id: entry for entry in extra}
        self.problems: dict[str, str] = {}  # why entries could not be read, at the last listing
        self._by_path: dict[Path, ModelEntry] = {}
        self._loaded: OrderedDict[tuple[str, str, int], LoadedModel] = OrderedDict()
        self._lock = threading.Lock()
        self.scan()

    def scan(self) -> None:
        """Look for models again; add new entries and remove those that are gone."""
        with self._lock:
            current: dict[Path, ModelEntry] = {}
            for folder in self.folders:
                for path in _models_in(folder):
                    if len(current) < MAX_ENTRIES:
                        current[path] = self._known(path) or self._add(path)
            for path, entry in self._by_path.items():
                if path not in current:
                    self.entries.pop(entry.id, None)
            self._by_path = current

    def _known(self, path: Path) -> ModelEntry | None:
        """The existing entry of a path; None if another run was started in its place."""
        entry = self._by_path.get(path)
        if entry is not None and entry.config_time != modification_time(path / "config.json"):
            del self.entries[entry.id]
            return None
        return entry

    def _add(self, path: Path) -> ModelEntry:
        name = id = slug(path.resolve().name)
        number = 2
        while id in self.entries:
            id, number = f"{name}-{number}", number + 1
        self.entries[id] = ModelEntry(id, path, self.allow_bin)
        return self.entries[id]

    def models(self) -> list[ModelEntry]:
        """The entries with a checkpoint to load."""
        self.scan()
        usable, problems = [], {}
        for entry in list(self.entries.values()):
            problem = _problem(entry)
            if problem is not None:
                problems[entry.name] = problem
            elif entry.checkpoints():
                usable.append(entry)
        self.problems = problems
        return usable

    def runs(self) -> list[ModelEntry]:
        self.scan()
        entries = list(self.entries.values())
        return [each for each in entries if safe_files.is_file(each.path / "metrics.jsonl")]

    def entry(self, id: str) -> ModelEntry:
        if id not in self.entries:
            self.scan()
        entry = self.entries.get(id)
        if entry is None:
            raise unknown("model", id)
        return entry

    def checkpoint(self, entry: ModelEntry, requested: str | None) -> str:
        """The id of an existing checkpoint: the requested or the default one."""
        if requested is not None:
            if requested not in {each["id"] for each in entry.checkpoints()}:
                raise unknown("checkpoint", requested)
            return requested
        default = entry.default_checkpoint()
        if default is None:
            message = f"{entry.name} has no checkpoint yet"
            raise Problem(409, "no_checkpoint", message, hint="let it train a little longer")
        return default

    def load(self, entry: ModelEntry, checkpoint_id: str) -> LoadedModel:
        """A model in memory; to be called on the entry's worker."""
        manifest = entry.path / "checkpoints" / checkpoint_id / "manifest.json"
        key = (entry.id, checkpoint_id, modification_time(manifest))
        with self._lock:
            if key in self._loaded:
                self._loaded.move_to_end(key)
                return self._loaded[key]
        try:
            loaded = LoadedModel(entry, checkpoint_id, entry.load(checkpoint_id))
        except (ValueError, OSError) as problem:
            raise Problem(409, "cannot_open", str(problem)) from None
        with self._lock:
            self._loaded[key] = loaded
            while len(self._loaded) > MAX_LOADED_MODELS:
                self._loaded.popitem(last=False)
        return loaded

    def warm(self) -> None:
        """Begin to load the first model, before the page requests it."""
        models = self.models()
        if models:
            entry, checkpoint_id = models[0], self.checkpoint(models[0], None)
            # The check for NaN is cached with the model.
            entry.worker.submit(lambda: self.load(entry, checkpoint_id).nonfinite)

    def close(self) -> None:
        for entry in self.entries.values():
            entry.worker.close()


def _problem(entry: ModelEntry) -> str | None:
    """Why an entry cannot be shown, in one sentence. Its files are untrusted, and whatever is
    wrong with them must not hide the other entries."""
    try:
        _ = entry.config, entry.parameters, entry.tokenizer_kind
        entry.checkpoints()
        if entry.is_run:
            for name in ("metrics.jsonl", "samples.jsonl"):
                with suppress(FileNotFoundError):
                    metrics.opened(entry.path / name).close()
    except Exception as problem:
        reason = " ".join(str(problem).split())
        if not isinstance(problem, OSError | ValueError):
            kind = type(problem).__name__
            reason = f"{entry.path} is not what clearformer writes ({kind}: {reason:.80})"
        return clean(reason)
    return None


def _count_nonfinite(parameters: Iterable[Tensor]) -> tuple[int, int]:
    suspects = [p for p in parameters if not all_finite(p)]
    return sum(int(p.isnan().sum()) for p in suspects), sum(int(p.isinf().sum()) for p in suspects)


def slug(name: str) -> str:
    """An id without characters that mean something in a URL, in HTML or in a path."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:60] or "model"


def _models_in(folder: Path) -> Iterator[Path]:
    """The folder itself if it is a model, otherwise the models in it."""
    if is_model(folder):
        yield folder
    elif folder.is_dir():
        root = folder.resolve()
        for path in sorted(each for each in folder.iterdir() if not each.name.startswith(".")):
            # A link must not lead out of what the user named.
            if is_model(path) and path.resolve().is_relative_to(root):
                yield path


def is_model(path: Path) -> bool:
    """Whether a path is a run, a checkpoint, a Hugging Face folder, or a file of weights."""
    if path.is_file():
        return path.suffix in (".safetensors", ".gguf")
    if not os.path.lexists(path / "config.json"):
        return False
    # A damaged run counts too: the listing reports what is wrong with it.
    has_weights = any(os.path.isfile(path / name) for name in WEIGHT_FILES)
    return has_weights or has_run_files(path) or os.path.lexists(path / "manifest.json")
