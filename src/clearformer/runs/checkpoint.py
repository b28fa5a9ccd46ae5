"""Checkpoints on disk: written whole or not at all, checked before a number of them is used.

A checkpoint is a folder `step-N`. It is written under another name, every file synced, a
manifest with sizes and hashes last, and then renamed; a reader takes the newest folder whose
manifest holds. So a process killed at any instant leaves the checkpoint before it untouched.
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
SHARDS = "shards"  # the folder of what several ranks wrote, in a checkpoint of theirs
PASSED_OVER = "passed over a damaged checkpoint: "
ASIDE = "damaged-"  # begins the name of a folder that does not hold and is in nobody's way
MARGIN = 2**20  # bytes for what is no tensor
# What a run writes, and nothing that merely looks like it: \d knows digits of all scripts.
STEP = re.compile(r"step-(0|[1-9][0-9]{0,14})")
MAX_STEPS = 10**15  # no run has as many steps
FOLDER = re.compile(rf"(?:\.old-)?{STEP.pattern}")
Reached = Callable[[str], None]


def nothing_happens(point: str) -> None:
    """No fault: what every run outside a test passes for `reached`."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder whose manifest was found to hold."""

    folder: Path
    step: int
    manifest: Mapping[str, Any]

    def json(self, name: str) -> Any:
        return read_run_json(self._hashed(name))

    def tensors(self, name: str) -> dict[str, Tensor]:
        # Copies: the library maps the file, and a file that changes under a map is a crash.
        path = self._hashed(name)
        safe_files.require_file(path)
        try:
            return {key: value.clone() for key, value in load_file(path).items()}
        except (SafetensorError, OSError) as problem:
            raise ValueError(f"{path} holds no tensors: {problem}") from None

    def _hashed(self, name: str) -> Path:
        """A file that the manifest vouches for: no other is read."""
        if name not in self.manifest["files"]:
            raise ValueError(f"{self.folder} has no {name} that its manifest knows of")
        return self.folder / name


def write(
    folder: Path,
    step: int,
    tensors: Mapping[str, Mapping[str, Tensor]],
    documents: Mapping[str, Any],
    facts: Mapping[str, Any],
    reached: Reached = nothing_happens,
    shards: Path | None = None,
) -> Checkpoint:
    """Write `folder/step-N` from files of tensors and JSON documents, atomically.

    `shards` is a folder that was written beforehand and is moved in.
    """
    folder.mkdir(exist_ok=True)  # and not its parents: a run folder that is gone is not remade
    safe_files.require_folder(folder)
    needed = 1.1 * sum(map(_bytes, tensors.values())) + MARGIN
    require_space(folder, needed)
    reached("before_write")
    temporary = folder / f".tmp-step-{step}-{os.getpid()}"
    safe_files.remove(temporary)
    temporary.mkdir()
    try:
        for name, content in tensors.items():
            save_file(dict(content), temporary / name)
            reached(f"after_{Path(name).stem}")
        for name, document in documents.items():
            (temporary / name).write_text(as_text(document), encoding="utf-8")
        names = [*tensors, *documents]
        if shards is not None:
            shards.rename(temporary / SHARDS)
            names += [f"{SHARDS}/{path.name}" for path in sorted((temporary / SHARDS).iterdir())]
        for name in names:
            _settle(temporary / name)
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
        if is_full(problem):
            free = shutil.disk_usage(folder).free
            safe_files.remove(temporary)
            raise no_space(folder, needed, free) from problem
        safe_files.remove(temporary)
        raise OSError(
            f"the checkpoint of step {step} could not be written to {folder}: "
            f"{getattr(problem, 'strerror', None) or problem}; the one before it is untouched"
        ) from problem
    reached("before_rename")
    final = folder / f"step-{step}"
    if safe_files.is_folder(final) and _same(final, manifest):
        safe_files.remove(temporary)
        return verify(final)
    if os.path.lexists(final):
        # A rename onto a folder that is not empty fails: make room, without a moment in which
        # neither can be found.
        old = folder / f".old-step-{step}"
        safe_files.remove(old)
        final.rename(old)
        reached("during_swap")
    temporary.rename(final)
    _sync(folder)
    reached("after_rename")
    safe_files.remove(folder / f".old-step-{step}")
    return verify(final)


def sealed(manifest: Mapping[str, Any]) -> str:
    """The manifest's text, with a hash of its own: it is the one file no other file vouches for."""
    return _written({**manifest, SEAL: _seal(manifest)})


def as_text(document: Any) -> str:
    """JSON for people; a vocabulary, which nobody reads, on one line: that is ten times faster."""
    text = json.dumps(document, ensure_ascii=False)
    return text if len(text) > 2**16 else json.dumps(document, indent=1, ensure_ascii=False)


def verify(folder: Path) -> Checkpoint:
    """The checkpoint in `folder`, after every size and hash was found right; else ValueError."""
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
            f"{path} has format {version!r:.20} and step {step!r:.20}, no numbers of ours"
        )
    if version > FORMAT:
        raise ValueError(
            f"{folder} has format {version}, but this clearformer reads up to {FORMAT}: update it"
        )
    if version > 1 or SEAL in manifest:
        seal = manifest.pop(SEAL, None)
        if seal != _seal(manifest) or text != _written({**manifest, SEAL: seal}):
            raise ValueError(f"{path} was altered since it was written")
    named = _match(folder)
    if not files or (named and int(named[1]) != step):
        raise ValueError(f"{path} is of step {step} with {len(files)} files: not what was here")
    _require_shards(folder / SHARDS, files)
    for name, recorded in files.items():
        plain = Path(name).name == name.removeprefix(f"{SHARDS}/") and name.isprintable()
        if not plain or not isinstance(recorded, dict):
            raise ValueError(
                f"{folder}: the manifest names {name!r:.80}, which is no plain file name, or "
                f"says nothing of it"
            )
        try:
            found = _identity(folder / name)
        except OSError as problem:
            raise ValueError(
                f"{folder / name} is not readable: {problem.strerror or problem}"
            ) from None
        if found != recorded:
            what = "was cut or grew" if found["bytes"] != recorded.get("bytes") else "was altered"
            raise ValueError(f"{folder / name} {what} since it was written")
    return Checkpoint(folder, step, manifest)


def verify_in_run(path: Path) -> Checkpoint:
    """The same for a checkpoint that lies in a run: a link to a folder elsewhere is none."""
    safe_files.require_folder(path)
    return verify(path)


def newest(folder: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that holds; each one passed over is said. None if there is none."""
    found = [(int(match[1]), path) for path in _inside(folder) if (match := _match(path))]
    problems = []
    for _, path in sorted(found, key=lambda entry: (-entry[0], entry[1].name.startswith("."))):
        try:
            return verify_in_run(path)
        except ValueError as problem:
            problems.append(str(problem))
            say(f"{PASSED_OVER}{problem}")
    if problems:
        raise ValueError(
            f"none of the {len(problems)} checkpoints in {folder} can be read: {problems[0]}; "
            f"restore one, or start anew in another folder"
        )
    return None


def numbered(folder: Path) -> list[tuple[int, Path]]:
    """Whatever has the name of a checkpoint in a run's folder of them, by step, oldest first."""
    return sorted(
        (int(match[1]), path) for path in _inside(folder) if (match := STEP.fullmatch(path.name))
    )


def clean_up(folder: Path, chosen: Checkpoint | None, say: Callable[[str], None]) -> None:
    """Remove what an interrupted write left behind. Once a checkpoint was chosen and read, put
    damaged ones aside, too: they would be counted as some of those that are kept."""
    _remove_leftovers(folder, ".tmp-")
    if chosen is None:
        return
    for _, path in numbered(folder):
        if path != chosen.folder:
            try:
                verify_in_run(path)
            except ValueError:
                aside = path.with_name(f"{ASIDE}{path.name}")
                safe_files.remove(aside)
                path.rename(aside)
                say(f"note: {path} is damaged, and is now {aside.name}: delete it when you like")
    if chosen.folder.name.startswith(".old-"):
        # Its place was taken by one that did not hold: it has it back.
        chosen.folder.rename(folder / f"step-{chosen.step}")
    _remove_leftovers(folder, ".old-")


def _remove_leftovers(folder: Path, prefix: str) -> None:
    for path in _inside(folder):
        # A link goes too, but not what it leads to: a rename onto it would fail.
        if path.name.startswith(prefix) and (safe_files.is_folder(path) or path.is_symlink()):
            safe_files.remove(path)


def prune(folder: Path, keep: int, best: int | None, reached: Reached = nothing_happens) -> None:
    """Keep the last `keep` checkpoints and the best one."""
    steps = [(step, path) for step, path in numbered(folder) if safe_files.is_folder(path)]
    for step, path in steps[: -max(keep, 2)]:
        if step != best:
            # Renamed first: half a folder must not look like a damaged checkpoint.
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
        f"{free / 2**20:.1f} MiB are free; make room and continue with --resume (what was saved "
        f"before is untouched)"
    )


def is_full(problem: BaseException) -> bool:
    """Whether the disk is full, or the share of it that this user may have."""
    full = (errno.ENOSPC, errno.EDQUOT)
    # safetensors tells it in words: `I/O error: No space left on device (os error 28)`.
    return getattr(problem, "errno", None) in full or any(
        f"(os error {number})" in str(problem) for number in full
    )


def _seal(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(_written(manifest).encode()).hexdigest()


def _written(manifest: Mapping[str, Any]) -> str:
    return json.dumps(manifest, indent=1)


def _same(final: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether a folder holds what is about to be written, all of it whole."""
    try:
        return verify(final).manifest["files"] == manifest["files"]
    except ValueError:
        return False


def _require_shards(folder: Path, files: Mapping[str, Any]) -> None:
    """Every file among the ranks' parts is read, so the manifest must know each of them."""
    for path in _inside(folder):
        if f"{SHARDS}/{path.name}" not in files:
            raise ValueError(
                f"{folder} has the file {path.name!r:.80}, which the manifest does not know: "
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
    """Give a file the mode that the umask asks for (safetensors makes it private) and sync it."""
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
