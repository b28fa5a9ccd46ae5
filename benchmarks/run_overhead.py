"""What a run costs beside its bare training step: data, logging, checks, checkpoints.

    python benchmarks/run_overhead.py [--model modern-tiny] [--steps 100] [--threads N]

A run and a bare loop take turns, a step each, in one process. The bare loop has the same model,
optimizer, precision and clipping and one fixed batch, and does nothing else: forward, loss,
backward, clip, update. The run does what `clearformer train` does between its evaluations. Its
checkpoints are counted as their share of `save_seconds`, from two saves.

Processor time is shown beside wall time, for a machine that does other work as well.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from clocks import clocks, since

from clearformer.builder import build
from clearformer.config import RunConfig
from clearformer.data import DataFolders
from clearformer.families import preset
from clearformer.families.recipes import recipe
from clearformer.runs.run import Run
from clearformer.training import optim, precision
from clearformer.training.events import Saved, Step

WARM_UP = 5


def bare_step(run: Run) -> Callable[[], None]:
    """A training step of a model like the run's, on its first batch."""
    train = run.config.train
    model = build(run.config.model)
    optimizers = optim.make_optimizers(model, train)
    batch = run.task.batch(0)

    def step() -> None:
        with precision.autocast(run.precision, torch.device("cpu")):
            logits = model(batch.tokens)  # (B, T, V)
            loss = F.cross_entropy(logits.flatten(0, 1).float(), batch.targets.flatten())
        loss.backward()
        if train.gradient_clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), train.gradient_clip)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="modern-tiny")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--threads", type=int)
    asked = parser.parse_args()
    model = preset(asked.model)
    data, usual = recipe(model)
    train = replace(
        usual, minutes=None, steps=asked.steps, evaluations=1, threads=asked.threads, compile="off"
    )
    with tempfile.TemporaryDirectory() as folder:
        run = Run(
            RunConfig(model=model, data=data, train=train),
            Path(folder) / "run",
            DataFolders(cache=Path(folder) / "cache"),
            say=lambda words: None,
        )
        bare = bare_step(run)
        whole, alone, saves = [], [], []
        before = clocks()
        for event in run.events():
            taken = since(before)
            if isinstance(event, Saved):
                saves.append(taken)
            if isinstance(event, Step):
                whole.append(taken)
                before = clocks()
                bare()
                alone.append(since(before))
            before = clocks()
    print(f"{asked.model}, {torch.get_num_threads()} threads, {len(whole)} steps; medians")
    for number, clock in enumerate(("wall", "processor")):
        ours, theirs, save = (
            statistics.median(each[number] for each in times)
            for times in (whole[WARM_UP:], alone[WARM_UP:], saves)
        )
        ratios = [a[number] / b[number] for a, b in zip(whole, alone, strict=True)][WARM_UP:]
        low, _, high = statistics.quantiles(ratios, n=4)
        print(
            f"{clock}: a step of the run {ours * 1000:.1f} ms, bare {theirs * 1000:.1f} ms, "
            f"{statistics.median(ratios):.3f}x ({low:.3f} to {high:.3f}); "
            f"a save {save * 1000:.0f} ms, {save / train.save_seconds:.2%} of the time"
        )


if __name__ == "__main__":
    main()
