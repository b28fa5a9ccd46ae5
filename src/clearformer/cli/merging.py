"""`clearformer merge RUN --out DIR`: put an adapter into the weights of its model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from clearformer.cli.output import say


@dataclass(frozen=True)
class Merge:
    """Write the model that an adapter and its base make together, as a run of its own."""

    run_folder: tyro.conf.Positional[Path]
    """A run that was trained with --adapter, or one of its checkpoints."""
    out: Path
    """Folder of the new run."""
    base: Path | None = None
    """Where the model is that the adapter was trained for, if it was moved."""

    def run(self) -> None:
        from clearformer.model import merge

        model = merge(self.run_folder, self.out, base=self.base)
        say(f"{self.out}: {model.parameter_count:,} parameters, which no longer need another run")
