"""Which models there are to look at: runs, checkpoints and folders of weights, found and opened.

A client names a model by an id that we gave it, never by a path; files are opened only below
the folders that the user named.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

from torch import Tensor

from clearformer.build import outline
from clearformer.config import AnyModelConfig, NextToken, run_from_json
from clearformer.core.layout import lay_out
from clearformer.explore.errors import Problem, unknown
from clearformer.explore.jobs import Worker
from clearformer.explore.limits import OPEN_MODELS
from clearformer.explore.recording import blocks
from clearformer.explore.stages import all_finite
from clearformer.explore.subject import Subject
from clearformer.hub import importing
from clearformer.train import folder, records

WEIGHTS = "weights"  # the only checkpoint of a folder that no run wrote
MOST_ENTRIES = 500


class Entry:
    """One model that can be looked at: a run, or weights."""

    def __init__(self, id: str, path: Path) -> None:
        self.id = id
        self.path = path
        self.name = path.resolve().name
        self.stamp = _changed(path / "config.json")
        self.worker = Worker(id)

    @property
    def is_run(self) -> bool:
        return (self.path / "checkpoints").is_dir() or (self.path / "metrics.jsonl").is_file()

    @cached_property
    def config(self) -> AnyModelConfig:
        """What the model is, without its weights."""
        if self.is_run or (self.path / "manifest.json").is_file():
            text = (self.path / "config.json").read_text(encoding="utf-8")
            return run_from_json(json.loads(text)).model
        return importing.config_of(self.path)

    @cached_property
    def parameters(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes; a tensor that is shared counts once."""
        return [(name, tuple(p.shape)) for name, p in outline(self.config).named_parameters()]

    @cached_property
    def tokenizer_kind(self) -> str | None:
        path = self.path / "tokenizer.json"
        try:
            kind = json.loads(path.read_text(encoding="utf-8")).get("kind")
        except (OSError, ValueError, AttributeError):
            kind = None
        if kind is None and not self.is_run:
            known = ("tokenizer.json", "vocab.json", "vocab.txt")
            if self.path.is_dir() and not any((self.path / name).is_file() for name in known):
                return None
            return {"bert": "wordpiece"}.get(self.config.name.partition("-")[0], "bpe")
        return str(kind) if kind is not None else None

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
        place = self.path / "checkpoints"
        for each in place.iterdir() if place.is_dir() else ():
            match = re.fullmatch(r"step-(\d{1,12})", each.name)
            if match and (each / "manifest.json").is_file():
                yield int(match[1])

    def _losses(self) -> dict[int, float]:
        path = self.path / "metrics.jsonl"
        try:
            about = path.stat()
        except OSError:
            return {}
        return _losses(path, about.st_size, about.st_mtime_ns)

    def default_checkpoint(self) -> str | None:
        """The best one, as every other verb opens it; else the newest."""
        several = [each["id"] for each in self.checkpoints()]
        if not several or not self.is_run:
            return several[0] if several else None
        path = self.path / "checkpoints" / several[0] / "state.json"
        try:
            best = json.loads(path.read_text(encoding="utf-8"))["best"]
            wanted = None if best is None else f"step-{int(best['step'])}"
        except (OSError, ValueError, KeyError, TypeError):
            wanted = None
        return wanted if wanted in several else several[0]

    def open(self, checkpoint_id: str) -> Subject:
        """The model of one checkpoint, every file of it verified."""
        if not self.is_run:
            return self._open_weights()
        path = self.path / "checkpoints" / checkpoint_id
        model, config, tokenizer, _ = folder.open_any(path)
        if isinstance(config.model.head, NextToken) and not hasattr(config.model, "marks"):
            lay_out(model)  # as `clearformer generate` has it, for the same text to the last bit
        return Subject(model, config.model, tokenizer, self.name)

    def _open_weights(self) -> Subject:
        if (self.path / "manifest.json").is_file():
            model, config, tokenizer, _ = folder.open_any(self.path)
            return Subject(model, config.model, tokenizer, self.name)
        found = importing.read(self.path, allow_bin=True)
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


@dataclass(frozen=True)
class Opened:
    """A model in memory, with the entry whose worker must run every call on it."""

    entry: Entry
    checkpoint: str
    subject: Subject

    @property
    def config(self) -> AnyModelConfig:
        assert self.subject.config is not None
        return self.subject.config

    @cached_property
    def not_finite(self) -> dict[tuple[str, int] | None, tuple[int, int]]:
        """NaN and infinities among the parameters, by part and layer; None: outside of them."""
        found: dict[tuple[str, int] | None, tuple[int, int]] = {}
        inside = set()
        for part, layer, block in blocks(self.subject.model):
            own = list(block.parameters())
            inside |= {id(p) for p in own}
            found[part, layer] = _not_finite(own)
        others = [p for p in self.subject.model.parameters() if id(p) not in inside]
        found[None] = _not_finite(others)
        return {place: counts for place, counts in found.items() if any(counts)}


class Library:
    """Everything below the folders that were given; runs that appear later are found too."""

    def __init__(self, folders: Sequence[Path], extra: Sequence[Entry] = ()) -> None:
        self.folders = [Path(each) for each in folders]
        self.entries: dict[str, Entry] = {}
        self.problems: dict[str, str] = {}  # what could not be read, and why
        self._by_path: dict[Path, Entry] = {}
        self._opened: OrderedDict[tuple[str, str, int], Opened] = OrderedDict()
        self._lock = threading.Lock()
        for entry in extra:
            self.entries[entry.id] = entry
        self.scan()

    def scan(self) -> None:
        """Look again; what is known stays as it is, what is gone goes."""
        with self._lock:
            found: dict[Path, Entry] = {}
            for place in self.folders:
                for path in _models_in(place):
                    if len(found) < MOST_ENTRIES:
                        found[path] = self._known(path) or self._new(path)
            for path, entry in self._by_path.items():
                if path not in found:
                    self.entries.pop(entry.id, None)
            self._by_path = found

    def _known(self, path: Path) -> Entry | None:
        """What was found here before; not if somebody began another run in its place."""
        entry = self._by_path.get(path)
        if entry is not None and entry.stamp != _changed(path / "config.json"):
            del self.entries[entry.id]
            return None
        return entry

    def _new(self, path: Path) -> Entry:
        entry = Entry(_free(slug(path.resolve().name), self.entries), path)
        self.entries[entry.id] = entry
        return entry

    def models(self) -> list[Entry]:
        """Those that have something to open, the newest first."""
        self.scan()
        usable = []
        for entry in self.entries.values():
            try:
                _ = entry.config
            except (OSError, ValueError, KeyError, TypeError) as problem:
                self.problems[entry.name] = str(problem)
                continue
            if entry.checkpoints():
                usable.append(entry)
        return usable

    def runs(self) -> list[Entry]:
        self.scan()
        return [each for each in self.entries.values() if (each.path / "metrics.jsonl").is_file()]

    def entry(self, id: str) -> Entry:
        found = self.entries.get(id)
        if found is None:
            self.scan()
            found = self.entries.get(id)
        if found is None:
            raise unknown("model", id)
        return found

    def checkpoint(self, entry: Entry, asked: str | None) -> str:
        """The id of a checkpoint that exists."""
        if asked is None:
            chosen = entry.default_checkpoint()
            if chosen is None:
                raise Problem(
                    409,
                    "no_checkpoint",
                    f"{entry.name} has no checkpoint yet",
                    hint="let it train a little longer",
                )
            return chosen
        if asked not in {each["id"] for each in entry.checkpoints()}:
            raise unknown("checkpoint", asked)
        return asked

    def open(self, entry: Entry, checkpoint_id: str) -> Opened:
        """To be called on the entry's worker: opening is a call on the model too."""
        manifest = entry.path / "checkpoints" / checkpoint_id / "manifest.json"
        key = (entry.id, checkpoint_id, _changed(manifest))
        with self._lock:
            if key in self._opened:
                self._opened.move_to_end(key)
                return self._opened[key]
        try:
            subject = entry.open(checkpoint_id)
        except (ValueError, OSError) as problem:
            raise Problem(409, "cannot_open", str(problem)) from None
        opened = Opened(entry, checkpoint_id, subject)
        with self._lock:
            self._opened[key] = opened
            while len(self._opened) > OPEN_MODELS:
                self._opened.popitem(last=False)
        return opened

    def warm(self) -> None:
        """Begin to open the first model: somebody is about to look at it."""
        for entry in self.models()[:1]:
            chosen = self.checkpoint(entry, None)
            entry.worker.submit(partial(_open_and_check, self, entry, chosen))

    def close(self) -> None:
        for entry in self.entries.values():
            entry.worker.close()


def _open_and_check(library: Library, entry: Entry, checkpoint_id: str) -> None:
    _ = library.open(entry, checkpoint_id).not_finite  # looked up once, then known


@lru_cache(maxsize=MOST_ENTRIES)
def _losses(path: Path, size: int, changed: int) -> dict[int, float]:
    """Validation losses by step; read again when the file has grown or changed."""
    try:
        found = records.read(path)
    except (OSError, ValueError):
        return {}
    return {
        r["step"]: r["loss"]
        for r in found
        if r.get("event") == "evaluation" and isinstance(r.get("loss"), int | float)
    }


def _not_finite(parameters: Sequence[Tensor]) -> tuple[int, int]:
    doubtful = [p for p in parameters if not all_finite(p)]
    nan = sum(int(p.isnan().sum()) for p in doubtful)
    return nan, sum(int(p.isinf().sum()) for p in doubtful)


def _changed(path: Path) -> int:
    """When a file was last written; 0 if there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def slug(name: str) -> str:
    """An id that means nothing to a browser or a file system."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:60] or "model"


def _free(wanted: str, taken: dict[str, Entry]) -> str:
    number, found = 2, wanted
    while found in taken:
        found, number = f"{wanted}-{number}", number + 1
    return found


def _models_in(place: Path) -> Iterator[Path]:
    """The place itself if it is a model, else the models in it."""
    if is_model(place):
        yield place
    elif place.is_dir():
        inside = sorted(each for each in place.iterdir() if not each.name.startswith("."))
        root = place.resolve()
        for each in inside:
            # A link must not lead out of what the user named.
            if is_model(each) and each.resolve().is_relative_to(root):
                yield each


def is_model(path: Path) -> bool:
    """A run, a checkpoint, a Hugging Face folder, or a file of weights."""
    if path.is_file():
        return path.suffix == ".safetensors"
    if not (path / "config.json").is_file():
        return False
    run = (path / "checkpoints").is_dir() or (path / "metrics.jsonl").is_file()
    return (
        run
        or (path / "manifest.json").is_file()
        or any(
            (path / name).is_file()
            for name in ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
        )
    )
