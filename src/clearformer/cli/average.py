"""`clearformer average RUN --last 5`: the mean of a run's last checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from clearformer.cli.output import say


@dataclass(frozen=True)
class Average:
    """Average the weights of a run's last checkpoints, as the original paper did."""

    run_folder: tyro.conf.Positional[Path]
    """A run (what --out named)."""
    last: int = 5
    """Number of checkpoints; a run keeps --train.keep-checkpoints of them."""
    out: Path | None = None
    """Folder of the new run; none: RUN-average."""

    def run(self) -> None:
        from clearformer.runs.checkpoint_average import average

        folder = self.run_folder.resolve()  # of "." the name is not known
        out = self.out or folder.with_name(f"{folder.name}-average")
        found = average(folder, self.last, out)
        steps = ", ".join(map(str, found.manifest["averaged"]))
        say(f"{out}: the mean of the steps {steps}")
