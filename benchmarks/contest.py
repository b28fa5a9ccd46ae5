"""Training several models one after the other, with the same code, data and time."""

import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from clearformer.builder import build
from clearformer.cli.train import parse, places
from clearformer.config import AnyModelConfig, RunConfig
from clearformer.core.model import Transformer
from clearformer.data import DataFolders
from clearformer.runs.run import Model, Run
from clearformer.training.events import Step

TIMED_STEPS = 16
Make = Callable[[AnyModelConfig, int], Model]


@dataclass(frozen=True)
class Contestant:
    """The arguments of `clearformer train`, and the builder of the model."""

    words: str
    make: Make = build
    share: float = 1.0  # of the time


@dataclass(frozen=True)
class Trained:
    run: Run
    model: Transformer
    steps: int
    tokens: int

    @property
    def parameters(self) -> int:
        return sum(each.numel() for each in self.model.parameters())


def data_places() -> DataFolders:
    return places(None)


def train(name: str, contestant: Contestant, minutes: float, seed: int, out: Path) -> Trained:
    """Train one model from scratch for the given minutes, or for the epochs or steps it names."""
    words = contestant.words.split()
    if not {"--epochs", "--steps"} & set(words):
        words += ["--minutes", str(minutes * contestant.share)]
    run = new_run(name, contestant, words, seed, out)
    last = None
    for event in run.events():
        last = event if isinstance(event, Step) else last
    assert last is not None
    assert isinstance(run.model, Transformer)
    return Trained(run, run.model, last.step, last.tokens)


def new_run(name: str, contestant: Contestant, words: list[str], seed: int, out: Path) -> Run:
    asked = parse(words)
    config = RunConfig(model=asked.model, data=asked.data, train=replace(asked.train, seed=seed))
    folder = out / f"{name.replace(' ', '-')}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    return Run(config, folder, data_places(), make=contestant.make, say=lambda words: None)


def step_seconds(name: str, contestant: Contestant, out: Path) -> float:
    """CPU seconds of a training step: the median of some."""
    words = [*contestant.words.split(), "--steps", str(TIMED_STEPS), "--evaluations", "1"]
    run = new_run(f"{name}-timed", contestant, words, 0, out)
    times = [time.process_time() for event in run.events() if isinstance(event, Step)]
    taken = [later - earlier for earlier, later in pairwise(times)]
    return statistics.median(taken[1:])  # the first ones warm up
