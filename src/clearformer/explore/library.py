"""Which models there are to look at: runs, checkpoints and folders of weights, found and opened.

A client names a model by an id that we gave it, never by a path; files are opened only below
the folders that the user named.
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from torch import Tensor

from clearformer import safe_files
from clearformer.config import AnyModelConfig
from clearformer.explore.entries import Entry, changed, looks_like_run
from clearformer.explore.errors import Problem, unknown
from clearformer.explore.limits import OPEN_MODELS
from clearformer.explore.recording import blocks
from clearformer.explore.safe_text import clean
from clearformer.explore.stages import all_finite
from clearformer.explore.subject import Subject
from clearformer.runs import metrics

MOST_ENTRIES = 500


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

    def __init__(
        self, folders: Sequence[Path], extra: Sequence[Entry] = (), *, allow_bin: bool = False
    ) -> None:
        self.folders = [Path(each) for each in folders]
        self.allow_bin = allow_bin
        self.entries: dict[str, Entry] = {}
        self.problems: dict[str, str] = {}  # what could not be read, and why; of the last look
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
        if entry is not None and entry.stamp != changed(path / "config.json"):
            del self.entries[entry.id]
            return None
        return entry

    def _new(self, path: Path) -> Entry:
        entry = Entry(_free(slug(path.resolve().name), self.entries), path, self.allow_bin)
        self.entries[entry.id] = entry
        return entry

    def models(self) -> list[Entry]:
        """Those that have something to open, the newest first."""
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

    def runs(self) -> list[Entry]:
        self.scan()
        entries = list(self.entries.values())
        return [each for each in entries if safe_files.is_file(each.path / "metrics.jsonl")]

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
        key = (entry.id, checkpoint_id, changed(manifest))
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


def _problem(entry: Entry) -> str | None:
    """Why an entry cannot be shown, in one sentence. Its files may be anyone's, and whatever is
    wrong with them must not hide the others."""
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


def _open_and_check(library: Library, entry: Entry, checkpoint_id: str) -> None:
    _ = library.open(entry, checkpoint_id).not_finite  # looked up once, then known


def _not_finite(parameters: Sequence[Tensor]) -> tuple[int, int]:
    doubtful = [p for p in parameters if not all_finite(p)]
    nan = sum(int(p.isnan().sum()) for p in doubtful)
    return nan, sum(int(p.isinf().sum()) for p in doubtful)


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
    if not os.path.lexists(path / "config.json"):
        return False
    # A run that somebody spoiled is one, too: what is wrong with it is told when it is read.
    return (
        looks_like_run(path)
        or os.path.lexists(path / "manifest.json")
        or any(
            os.path.isfile(path / name)
            for name in ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
        )
    )
