"""`clearformer tensorboard RUN ...`: the metrics of runs as event files for TensorBoard."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import tyro

from clearformer.cli.output import say


@dataclass(frozen=True)
class TensorBoard:
    """Write the metrics of runs for TensorBoard; `train --log tensorboard` does it on the way."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Runs (what --out named in train)."""
    out: Path | None = None
    """A folder that gets a folder for each run (default: the folder tensorboard in each run)."""

    def run(self) -> None:
        from clearformer.runs.log_writers import logdir, tensorboard

        targets = tensorboard(*self.runs, out=self.out)
        for target in targets:
            say(f"wrote {target}")
        say(f"next: tensorboard --logdir {shlex.quote(str(logdir(targets)))}")
