"""Cost of checkpoints: time of a save compared with the time of a step, in one process.

    python benchmarks/checkpoints.py [--model modern-small] [--saves 8] [--out FOLDER]

A run saves after every step. What lies between the end of a step and the end of its save is the
save: weights and optimizer to disk, synced, hashed, read again and compared, old ones removed.
At the default interval one such save falls on `save_seconds` of training; its share is what
checkpoints cost. Processor time is shown too, for a machine that does other work as well.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

from clocks import clocks, since

from clearformer import data
from clearformer.config import RunConfig, TrainConfig
from clearformer.families import preset
from clearformer.families.recipes import recipe
from clearformer.runs.run import Run
from clearformer.training.events import Saved, Step


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--model", default="modern-small")
    arguments.add_argument("--saves", type=int, default=8)
    arguments.add_argument("--threads", type=int, default=None)
    arguments.add_argument("--out", type=Path, default=None, help="where to write; none: temporary")
    given = arguments.parse_args()
    model = preset(given.model)
    source, usual = recipe(model)
    interval = TrainConfig(learning_rate=1.0, batch_size=1, steps=1).save_seconds
    train = replace(
        usual,
        minutes=None,
        steps=given.saves,
        save_seconds=1e-9,
        evaluations=1,
        threads=given.threads,
        compile="off",
    )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clearformer"
    with tempfile.TemporaryDirectory() as folder:
        run = Run(
            RunConfig(model=model, data=source, train=train),
            given.out or Path(folder) / "run",
            data.DataFolders(None, cache),
            say=lambda line: None,
        )
        steps, saves, before = [], [], clocks()
        for event in run.events():
            # The last save follows an evaluation, and the first step warms up.
            if isinstance(event, Step) and event.step > 1:
                steps.append(since(before))
            elif isinstance(event, Saved) and event.step < given.saves:
                saves.append(since(before))
                size = sum(path.stat().st_size for path in event.folder.iterdir())
            before = clocks()
    count = sum(parameter.numel() for parameter in run.model.parameters())
    print(f"{given.model}: {count:,} parameters, {size / 2**20:.0f} MiB in a checkpoint")
    for name, spent in (("step", steps), ("save", saves)):
        wall, own = (statistics.median(column) for column in zip(*spent, strict=True))
        print(f"{name}: {wall:.3f} s of the clock, {own:.3f} s of the processor (median)")
    print(
        f"a save every {interval:g} s costs {wall / interval:.2%} of the time "
        f"({own / interval:.2%} of the processor's; wanted: under 2 %)"
    )


if __name__ == "__main__":
    main()
