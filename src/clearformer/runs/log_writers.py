"""Writers of logs: event files of TensorBoard, and runs of Weights & Biases."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from clearformer import safe_files
from clearformer.arguments import as_path
from clearformer.runs import lock
from clearformer.runs.logs import Logs, Say, Writer, saved_rows, seconds_of

SUFFIX = ".clearformer"  # of our event files, which are written anew at each start
EVENT_FILES = f"events.out.tfevents.*{SUFFIX}"
TENSORBOARD = "tensorboard"  # the folder in a run
PROJECT = "clearformer"  # of Weights & Biases, unless WANDB_PROJECT names another


class TensorBoardWriter:
    """An event file in a folder; our earlier ones there are removed."""

    def __init__(self, folder: Path, started: float) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.started = started  # when training would have begun, had it never paused
        folder.mkdir(parents=True, exist_ok=True)
        safe_files.require_folder(folder)
        for old in folder.glob(EVENT_FILES):
            old.unlink()
        # The purge tells a TensorBoard that is open to forget what it has read.
        self._writer = SummaryWriter(str(folder), purge_step=0, filename_suffix=SUFFIX)

    def write(self, step: int, scalars: Mapping[str, float], seconds: float) -> None:
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step, walltime=self.started + seconds)

    def close(self) -> None:
        self._writer.close()


class WandbWriter:
    """A run of Weights & Biases with the whole curve; offline unless WANDB_MODE says otherwise."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=folder.resolve().name,
            dir=str(folder),
            config=dict(config),
            mode=cast(Any, os.environ.get("WANDB_MODE", "offline")),
            settings=wandb.Settings(silent=True),
        )

    def write(self, step: int, scalars: Mapping[str, float], seconds: float) -> None:
        self._run.log({**scalars, "seconds": seconds}, step=step)

    def close(self) -> None:
        self._run.finish()


@dataclass(frozen=True)
class WriterKind:
    """A tool, the package that it needs, and how its writer is made."""

    package: str
    make: Callable[[Path, Mapping[str, Any], float], Writer]

    def require(self) -> None:
        if importlib.util.find_spec(self.package) is None:
            raise ValueError(
                f"the log for {self.package} needs a package that is not installed: pip install "
                f"'clearformer[{self.package}]'"
            )

    def maker(
        self, folder: Path, config: Mapping[str, Any], trained: float
    ) -> Callable[[], Writer]:
        """Makes the writer of a run that has trained for so many seconds."""
        return lambda: self.make(folder, config, trained)


WRITERS: Mapping[str, WriterKind] = {
    "tensorboard": WriterKind(
        "tensorboard",
        lambda folder, config, trained: TensorBoardWriter(
            folder / TENSORBOARD, time.time() - trained
        ),
    ),
    "wandb": WriterKind("wandb", lambda folder, config, trained: WandbWriter(folder, config)),
}


def require_logs(log: str | Sequence[str] | None) -> tuple[str, ...]:
    """The logs that were asked for; ValueError for an unknown one, or a missing package."""
    names = (log,) if isinstance(log, str) else tuple(log or ())
    for name in names:
        if name not in WRITERS:
            raise ValueError(f"`log` is {name!r:.40}, but it must be {' or '.join(WRITERS)}")
        WRITERS[name].require()
    return tuple(dict.fromkeys(names))


def open_logs(
    names: Sequence[str],
    folder: Path,
    config: Mapping[str, Any],
    counted: str,
    step: int,
    say: Say,
) -> Logs:
    """The logs of the run in `folder`, with the rows up to `step` in them."""
    rows = [row for row in saved_rows(folder) if row.get("step", 0) <= step] if names else []
    trained = seconds_of(rows)
    makers = {name: WRITERS[name].maker(folder, config, trained) for name in names}
    logs = Logs(makers, counted, say)
    logs.rows(rows)
    return logs


def tensorboard(
    *runs: str | os.PathLike[str], out: str | os.PathLike[str] | None = None
) -> list[Path]:
    """Write the metrics of runs as event files for TensorBoard.

    Args:
        runs (path): Runs, one after the other (what ``out`` named in training).
        out (path, optional): A folder that gets a folder for each run. Default: the folder
            ``tensorboard`` in each run.

    Returns:
        list of Path: The folders that were written, one for each run.

    Raises:
        ValueError: If a folder is not a run or has no metrics, or tensorboard is not installed.
    """
    WRITERS["tensorboard"].require()
    if not runs:
        raise ValueError("no run was given: name at least one")
    places = [as_path("runs", each) for each in runs]
    names = [place.resolve().name for place in places]
    if out is not None and len(set(names)) < len(names):
        raise ValueError(
            f"two runs have the name {max(names, key=names.count)}, so one folder cannot hold "
            f"both: leave `out` away, or write them one by one"
        )
    base = None if out is None else as_path("out", out)
    pairs = zip(places, names, strict=True)
    targets = [run / TENSORBOARD if base is None else base / name for run, name in pairs]
    for run, target in zip(places, targets, strict=True):
        _write_events(run, target, base is None)
    return targets


def _write_events(run: Path, target: Path, inside: bool) -> None:
    if not (run / "metrics.jsonl").exists():
        raise ValueError(f"{run} is not a run with metrics: it has no metrics.jsonl")
    if inside and lock.held(run):
        raise ValueError(
            f"{run} is being trained: choose another folder with `out`, or train with `log`"
        )
    rows = saved_rows(run)
    if not any(row["event"] in ("step", "evaluation") for row in rows):
        raise ValueError(f"{run} has no step in its metrics.jsonl yet: let it train first")
    started = (run / "metrics.jsonl").stat().st_mtime - seconds_of(rows)
    problems: list[str] = []
    logs = Logs({"tensorboard": lambda: TensorBoardWriter(target, started)}, "", problems.append)
    logs.rows(rows)
    logs.close()
    if problems:
        reason = problems[0].partition(" from here on: ")[2]
        raise ValueError(f"{target} could not be written: {reason}")


def logdir(targets: Iterable[Path]) -> Path:
    """The folder to give to `tensorboard --logdir`."""
    return Path(os.path.commonpath([target.absolute() for target in targets]))
