"""How fast this machine trains: a few real steps, of the whole model or of a part of it.

A model too large to try in seconds is cut to its first layers, fewer sequences and, at last,
shorter ones; what was reached there in operations a second is taken for the whole.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from clearformer.build import build
from clearformer.config import RunConfig
from clearformer.train import footprint, optim, precision, recompute
from clearformer.train.footprint import Footprint
from clearformer.train.recompute import Recompute

SECONDS = 8.0  # that a measurement may take, about
SHORTEST = 256  # tokens of a sequence that is cut


@dataclass(frozen=True)
class Pace:
    """What a machine reaches."""

    rate: float  # operations a second, forward and backward
    update: float  # seconds an optimizer takes for each parameter
    whole: bool  # whether the very model was measured

    def seconds(self, each: Footprint, accumulate: int) -> float:
        """One step: so many micro-batches, one update."""
        return accumulate * each.operations / self.rate + each.parameters * self.update


def measure(config: RunConfig, rows: int, what: Recompute, counted: Footprint) -> Pace:
    """Time a step of `rows` sequences; `counted` is the footprint of just that."""
    possible = _matmul_rate() / 2 * SECONDS / 4
    part, some, own = config, rows, counted
    if own.operations > possible:
        part, some = _cut(config, rows, counted.operations / possible)
        own = footprint.footprint(part, some, what, accumulated=False)
    passes, updates = _times(part, some, what)
    return Pace(own.operations / passes, updates / own.parameters, whole=part is config)


def _cut(config: RunConfig, rows: int, excess: float) -> tuple[RunConfig, int]:
    """A part of the work, about `excess` times less: sequences first, then layers, then length."""
    some = max(1, round(rows / excess))
    excess *= some / rows
    model = config.model
    layers = max(len(model.patterns), round(model.layers / max(1.0, excess)))
    layers = min(model.layers, layers)
    excess *= layers / model.layers
    length = model.length
    if excess > 1:
        length = max(min(SHORTEST, length), round(length / max(1.0, excess)))
    return replace(config, model=replace(model, layers=layers, length=length)), some


def _times(config: RunConfig, rows: int, what: Recompute) -> tuple[float, float]:
    """Seconds of a forward and backward pass, and of an update: medians of a few."""
    with torch.random.fork_rng(devices=[]):
        model = build(config.model)
        model.train()
        recompute.apply(model, what)
        rules = optim.optimizers(model, config.train)
        device = torch.device("cpu")
        half = precision.resolve(config.train.precision, device)
        loss: Any = precision.under(model.loss, half, device)
        passes: list[float] = []
        updates: list[float] = []
        began = time.perf_counter()
        while len(passes) < 2 or time.perf_counter() - began < SECONDS / 2:
            for rule in rules:
                rule.zero_grad()
            batch, pasts = footprint.example(config, rows)
            start = time.perf_counter()
            sums, _ = loss(batch, pasts) if pasts else loss(batch)
            sums.sum().backward()
            middle = time.perf_counter()
            nn.utils.clip_grad_norm_(list(model.parameters()), 1.0)
            for rule in rules:
                rule.step()
            passes.append(middle - start)
            updates.append(time.perf_counter() - middle)
    # The first pays for what is only done once.
    return statistics.median(passes[1:]), statistics.median(updates[1:])


def _matmul_rate() -> float:
    a, b = torch.randn(512, 512), torch.randn(512, 512)
    a @ b
    start = time.perf_counter()
    for _ in range(4):
        a @ b
    return 4 * 2 * 512**3 / (time.perf_counter() - start)
