"""G20: run folders from others, with links in place of their files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from clearformer import safe_files
from clearformer.selftest import command_runner
from clearformer.selftest.processes import require
from clearformer.selftest.toy_run import ToyRun

FILES = (
    "metrics.jsonl",
    "lock",
    "checkpoints/step-2",
    "README.md",
    "samples.jsonl",
    "config.json",
    "stop",
    "checkpoints",
    "checkpoints/step-3",
    "checkpoints/.old-step-3",
    "checkpoints/.tmp-shards-3",
    "checkpoints/step-2/manifest.json",
    "checkpoints/step-2/tokenizer.json",
)
SECRET = "precious, without an end of line"


def links(workdir: Path, *, names: Sequence[str] = FILES) -> str:
    """Such a run is resumed or refused; no file elsewhere is changed or printed."""
    toy = ToyRun(workdir, 2)
    toy.finish(workdir / "run")
    outside = workdir / "outside"
    shutil.copytree(workdir / "run/checkpoints/step-2", outside / "folder")
    (outside / "file").write_text(SECRET)
    before = _contents(outside)
    count = 0
    for name in names:
        for kind, plant in _plants(outside, is_folder=(workdir / "run" / name).is_dir()).items():
            folder = workdir / "foreign"
            safe_files.remove(folder)
            shutil.copytree(workdir / "run", folder)
            safe_files.remove(folder / name)
            plant(folder / name)
            child = ToyRun(workdir, 3).start(folder)
            code, output = child.wait(), child.output()
            require(code in (0, 2), f"{kind} as {name}: train ended with {code}: {output[-300:]}")
            outcome = command_runner.run(["generate", str(folder), "x", "--max-tokens", "1"])
            require(outcome.clean, f"{kind} as {name}: generate wrote {outcome.err[-300:]!r}")
            shown = output + outcome.out + outcome.err
            require(SECRET not in shown, f"{kind} as {name}: a file elsewhere was printed")
            require(_contents(outside) == before, f"{kind} as {name}: a file elsewhere changed")
            count += 1
    return f"{count} links in place of {len(names)} files: nothing elsewhere changed"


def _plants(outside: Path, *, is_folder: bool) -> dict[str, Callable[[Path], None]]:
    target = outside / ("folder" if is_folder else "file")
    plants = {"a symbolic link": lambda path: path.symlink_to(target)}
    if not is_folder:
        plants["a hard link"] = lambda path: os.link(target, path)
    return plants


def _contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
