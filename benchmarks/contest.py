"""Training several models one after the other, with the same code, data and time."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from clearformer.builder import build
from clearformer.cli.train import parse, places
from clearformer.config import AnyModelConfig, RunConfig
from clearformer.core.model import Transformer
from clearformer.data import DataFolders
from clearformer.runs.run import Model, Run
from clearformer.training.events import Step

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
    """Train one model from scratch for the given minutes, or for the epochs that it names."""
    words = contestant.words.split()
    if "--epochs" not in words:
        words += ["--minutes", str(minutes * contestant.share)]
    asked = parse(words)
    config = RunConfig(model=asked.model, data=asked.data, train=replace(asked.train, seed=seed))
    folder = out / f"{name.replace(' ', '-')}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    run = Run(config, folder, data_places(), make=contestant.make, say=lambda words: None)
    last = None
    for event in run.events():
        last = event if isinstance(event, Step) else last
    assert last is not None
    assert isinstance(run.model, Transformer)
    return Trained(run, run.model, last.step, last.tokens)
