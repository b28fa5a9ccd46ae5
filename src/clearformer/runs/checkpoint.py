"""Checkpoints on disk: written whole or not at all, verified before use.

A checkpoint is a folder `step-N`. It is written under another name, every file synced, a
manifest with sizes and hashes last, and then renamed; a reader takes the newest folder whose
manifest holds. So a process that is killed at any instant leaves the previous checkpoint intact.
Weights are safetensors, everything else JSON: opening one never runs code.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from clearformer import limits, safe_files
from clearformer.safe_json import parse_json, read_run_json

FORMAT = 2  # 1 had no seal on the manifest
SEAL = "sha256"  # of everything else in the manifest
SHARDS = "shards"  # folder of the shards that several ranks wrote
PASSED_OVER = "passed over a damaged checkpoint: "
DAMAGED = "damaged-"  # prefix of a damaged checkpoint that was moved aside
MARGIN = 2**20  # bytes besides tensors
STEP = re.compile(r"step-(0|[1-9][0-9]{0,14})")  # \d would match digits of all scripts
MAX_STEPS = 10**15
FOLDER = re.compile(rf"(?:\.old-)?{STEP.pattern}")
Reached = Callable[[str], None]


def no_fault(point: str) -> None:
    """The default of `reached`: no fault is injected."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder whose manifest was verified."""

    folder: Path
    step: int
    manifest: Mapping[str, Any]

    @property
    def facts(self) -> dict[str, Any]:
        """What the manifest records besides its files."""
        own = ("format", "step", "files")
        return {name: value for name, value in self.manifest.items() if name not in own}

    def json(self, name: str) -> Any:
        return read_run_json(self._hashed(name))

    def tensors(self, name: str) -> dict[str, Tensor]:
        # Copies: safetensors maps the file, and changing a mapped file would crash the process.
        path = self._hashed(name)
        safe_files.require_file(path)
        try:
            return {key: value.clone() for key, value in load_file(path).items()}
        except (SafetensorError, OSError) as problem:
            raise ValueError(f"{path} is not a readable safetensors file: {problem}") from None

    def _hashed(self, name: str) -> Path:
        """The path of a file in the manifest; no other file is read."""
        if name not in self.manifest["files"]:
            raise ValueError(f"{self.folder} has no {name} in its manifest")
        return self.folder / name


def write(
    folder: Path,
    step: int,
    tensors: Mapping[str, Mapping[str, Tensor]],
    documents: Mapping[str, Any],
    facts: Mapping[str, Any],
    reached: Reached = no_fault,
    shards: Path | None = None,
) -> Checkpoint:
    """Write `folder/step-N` from files of tensors and JSON documents, atomically.

    `shards` is a folder that was written beforehand and is moved in.
    """
    folder.mkdir(exist_ok=True)  # without parents: a deleted run folder is not created again
    safe_files.require_folder(folder)
    needed = 1.1 * sum(map(_bytes, tensors.values())) + MARGIN
    require_space(folder, needed)
    reached("before_write")
    temporary = folder / f".tmp-step-{step}-{os.getpid()}"
    safe_files.remove(temporary)
    temporary.mkdir()
    try:
        names = _write_files(temporary, tensors, documents, shards, reached)
        reached("before_manifest")
        manifest = {
            "format": FORMAT,
            "step": step,
            **facts,
            "files": {name: _identity(temporary / name) for name in names},
        }
        (temporary / "manifest.json").write_text(sealed(manifest))
        _settle(temporary / "manifest.json")
        for each in {(temporary / name).parent for name in (*names, "manifest.json")}:
            _sync(each)
    except (OSError, SafetensorError) as problem:
        free = shutil.disk_usage(folder).free
        safe_files.remove(temporary)
        if is_full(problem):
            raise no_space(folder, needed, free) from problem
        raise OSError(
            f"the checkpoint of step {step} could not be written to {folder}: "
            f"{getattr(problem, 'strerror', None) or problem}; the one before it is untouched"
        ) from problem
    reached("before_rename")
    return _move_into_place(temporary, folder / f"step-{step}", manifest, reached)


def write_run(
    run: Path,
    step: int,
    tensors: Mapping[str, Mapping[str, Tensor]],
    documents: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> Checkpoint:
    """Write a run with a single checkpoint, such as an imported or an averaged model."""
    written = write(run / "checkpoints", step, tensors, documents, facts)
    for name in ("config.json", "tokenizer.json"):
        safe_files.replace(run / name, as_text(documents[name]).encode())
    return written


def _write_files(
    folder: Path,
    tensors: Mapping[str, Mapping[str, Tensor]],
    documents: Mapping[str, Any],
    shards: Path | None,
    reached: Reached,
) -> list[str]:
    """Write and sync the files of a checkpoint; their names."""
    for name, content in tensors.items():
        save_file(dict(content), folder / name)
        reached(f"after_{Path(name).stem}")
    for name, document in documents.items():
        (folder / name).write_text(as_text(document), encoding="utf-8")
    names = [*tensors, *documents]
    if shards is not None:
        shards.rename(folder / SHARDS)
        names += [f"{SHARDS}/{path.name}" for path in sorted((folder / SHARDS).iterdir())]
    for name in names:
        _settle(folder / name)
    return names


def _move_into_place(
    temporary: Path, final: Path, manifest: Mapping[str, Any], reached: Reached
) -> Checkpoint:
    """Rename a finished checkpoint, in place of one of the same step if there is one."""
    if safe_files.is_folder(final) and _same(final, manifest):
        safe_files.remove(temporary)
        return verify(final)
    old = final.with_name(f".old-{final.name}")
    if os.path.lexists(final):
        # A rename onto a folder that is not empty fails. The old one keeps a name under which it
        # is found until the new one is in place.
        safe_files.remove(old)
        final.rename(old)
        reached("during_swap")
    temporary.rename(final)
    _sync(final.parent)
    reached("after_rename")
    safe_files.remove(old)
    return verify(final)


def sealed(manifest: Mapping[str, Any]) -> str:
    """The text of a manifest with a hash of itself, since no other file has one of it."""
    return _serialized({**manifest, SEAL: _seal(manifest)})


def as_text(document: Any) -> str:
    """Indented JSON; a large document on one line, which is ten times faster."""
    text = json.dumps(document, ensure_ascii=False)
    return text if len(text) > 2**16 else json.dumps(document, indent=1, ensure_ascii=False)


def verify(folder: Path) -> Checkpoint:
    """The checkpoint in `folder`, after all sizes and hashes were checked; else ValueError."""
    step, manifest = _read_manifest(folder)
    files = dict(manifest["files"])
    _require_shards(folder / SHARDS, files)
    for name, recorded in files.items():
        plain = Path(name).name == name.removeprefix(f"{SHARDS}/") and name.isprintable()
        if not plain or not isinstance(recorded, dict):
            raise ValueError(
                f"{folder}: the manifest lists {name!r:.80}, which is not a plain file name or has "
                f"no size and hash"
            )
        try:
            actual = _identity(folder / name)
        except OSError as problem:
            raise ValueError(
                f"{folder / name} is not readable: {problem.strerror or problem}"
            ) from None
        if actual != recorded:
            change = (
                "changed its size" if actual["bytes"] != recorded.get("bytes") else "was altered"
            )
            raise ValueError(f"{folder / name} {change} since it was written")
    return Checkpoint(folder, step, manifest)


def _read_manifest(folder: Path) -> tuple[int, dict[str, Any]]:
    """The step and the manifest of a checkpoint, whose own hash is verified and removed."""
    path = folder / "manifest.json"
    try:
        data = safe_files.read(path, limits.MAX_JSON_BYTES, "MAX_JSON_BYTES")
        text, manifest = data.decode("utf-8"), parse_json(data, path)
        version, step, files = manifest["format"], manifest["step"], dict(manifest["files"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
        raise ValueError(f"{folder} has no readable manifest.json ({problem!r:.200})") from None
    if (
        type(version) is not int
        or type(step) is not int
        or version < 1
        or not 0 <= step < MAX_STEPS
    ):
        raise ValueError(
            f"{path} has format {version!r:.20} and step {step!r:.20}, which no run writes"
        )
    if version > FORMAT:
        raise ValueError(
            f"{folder} has format {version}, but this clearformer reads up to {FORMAT}: update it"
        )
    if version > 1 or SEAL in manifest:
        seal = manifest.pop(SEAL, None)
        if seal != _seal(manifest) or text != _serialized({**manifest, SEAL: seal}):
            raise ValueError(f"{path} was altered since it was written")
    named = _match(folder)
    if not files or (named and int(named[1]) != step):
        raise ValueError(
            f"{path} does not match its folder: it is of step {step} with {len(files)} files"
        )
    return step, manifest


def verify_in_run(path: Path) -> Checkpoint:
    """Verify a checkpoint inside a run, where links are not followed."""
    safe_files.require_folder(path)
    return verify(path)


def newest(folder: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """The newest intact checkpoint, None if there is none; damaged ones are reported."""
    candidates = [(int(match[1]), path) for path in _inside(folder) if (match := _match(path))]
    problems = []
    for _, path in sorted(candidates, key=lambda entry: (-entry[0], entry[1].name.startswith("."))):
        try:
            return verify_in_run(path)
        except ValueError as problem:
            problems.append(str(problem))
            say(f"{PASSED_OVER}{problem}")
    if problems:
        raise ValueError(
            f"none of the {len(problems)} checkpoints in {folder} can be read: {problems[0]}; "
            f"restore one, or start a new run in another folder"
        )
    return None


def numbered(folder: Path) -> list[tuple[int, Path]]:
    """Paths with the name of a checkpoint, by step, oldest first."""
    return sorted(
        (int(match[1]), path) for path in _inside(folder) if (match := STEP.fullmatch(path.name))
    )


def clean_up(folder: Path, current: Checkpoint | None, say: Callable[[str], None]) -> None:
    """Remove what an interrupted write left behind, and move damaged checkpoints aside.

    `current` is the checkpoint that was loaded. Damaged ones would count as checkpoints to keep.
    """
    _remove_leftovers(folder, ".tmp-")
    if current is None:
        return
    for _, path in numbered(folder):
        if path != current.folder:
            try:
                verify_in_run(path)
            except ValueError:
                aside = path.with_name(f"{DAMAGED}{path.name}")
                safe_files.remove(aside)
                path.rename(aside)
                say(f"note: {path} is damaged and was renamed to {aside.name}; it can be deleted")
    if current.folder.name.startswith(".old-"):
        # A damaged checkpoint had its name.
        current.folder.rename(folder / f"step-{current.step}")
    _remove_leftovers(folder, ".old-")


def _remove_leftovers(folder: Path, prefix: str) -> None:
    for path in _inside(folder):
        # A link is removed too, but not its target: a rename onto it would fail.
        if path.name.startswith(prefix) and (safe_files.is_folder(path) or path.is_symlink()):
            safe_files.remove(path)


def is_log_spaced(step: int) -> bool:
    """Whether a step is 0 or a power of 4 above 1: those of `TrainConfig.log_checkpoints`."""
    return step == 0 or (step > 1 and step.bit_count() == 1 and step.bit_length() % 2 == 1)


def prune(
    folder: Path,
    keep: int,
    best: int | None,
    reached: Reached = no_fault,
    also: Callable[[int], bool] | None = None,
) -> None:
    """Keep the last `keep` checkpoints, the best one, and those that `also` names."""
    steps = [(step, path) for step, path in numbered(folder) if safe_files.is_folder(path)]
    for step, path in steps[: -max(keep, 2)]:
        if step != best and not (also and also(step)):
            # Renamed first: a partly deleted folder must not look like a damaged checkpoint.
            doomed = path.with_name(f".old-{path.name}")
            safe_files.remove(doomed)
            path.rename(doomed)
            reached("during_prune")
            safe_files.remove(doomed)


def require_space(folder: Path, needed: float) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise no_space(folder, needed, free)


def no_space(folder: Path, needed: float, free: float) -> OSError:
    return OSError(
        f"no space for a checkpoint in {folder}: it needs {needed / 2**20:.1f} MiB, "
        f"{free / 2**20:.1f} MiB are free; free some space and continue with --resume "
        f"(earlier checkpoints are unchanged)"
    )


def is_full(problem: BaseException) -> bool:
    """Whether the disk or the quota of this user is full."""
    full = (errno.ENOSPC, errno.EDQUOT)
    # safetensors reports it in its message: `I/O error: No space left on device (os error 28)`.
    return getattr(problem, "errno", None) in full or any(
        f"(os error {number})" in str(problem) for number in full
    )


def _seal(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(_serialized(manifest).encode()).hexdigest()


def _serialized(manifest: Mapping[str, Any]) -> str:
    return json.dumps(manifest, indent=1)


def _same(final: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether a folder holds an intact checkpoint with the same files."""
    try:
        return verify(final).manifest["files"] == manifest["files"]
    except ValueError:
        return False


def _require_shards(folder: Path, files: Mapping[str, Any]) -> None:
    """All shards are read, so that the manifest must list each of them."""
    for path in _inside(folder):
        if f"{SHARDS}/{path.name}" not in files:
            raise ValueError(
                f"{folder} has the file {path.name!r:.80}, which the manifest does not list: "
                f"remove it"
            )


def _inside(folder: Path) -> list[Path]:
    safe_files.require_folder(folder)
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _match(path: Path) -> re.Match[str] | None:
    return FOLDER.fullmatch(path.name)


def _bytes(tensors: Mapping[str, Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def _identity(path: Path) -> dict[str, Any]:
    with safe_files.open_reading(path) as file:
        size = os.fstat(file.fileno()).st_size
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": size, "sha256": digest}


def _settle(path: Path) -> None:
    """Apply the umask to a file (safetensors makes it private) and sync it."""
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(0o666 & ~umask)
    _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
