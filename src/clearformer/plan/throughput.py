"""How fast this machine trains: a few real steps, of the whole model or of a part of it.

Of a model too large to try in seconds, two are timed that have fewer layers and are otherwise the
same: every layer more takes as long as the one before, and what is not in the layers (the tables,
the loss) is in both. Only where two layers of all sequences are too much, fewer sequences and, at
last, shorter ones are taken: a smaller tensor may be quicker for its size, by caches and pages.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from clearformer.builder import build
from clearformer.config import RunConfig
from clearformer.plan import footprint
from clearformer.plan.footprint import ASSUMED, Footprint, Sides
from clearformer.tasks.registry import task_of
from clearformer.training import optim, precision, recompute
from clearformer.training.recompute import Recompute

SECONDS = 8.0  # that a measurement may take, about
SHORTEST = 256  # tokens of a sequence that is cut
# Times as long as it should take, before a sequence is cut: its attention would be another work.
PATIENCE = 4


@dataclass(frozen=True)
class Pace:
    """What a machine reaches."""

    rate: float  # operations a second, forward and backward
    update: float  # seconds an optimizer takes for each parameter
    whole: bool  # whether the very model was measured

    def seconds(self, each: Footprint, accumulate: int) -> float:
        """One step: so many micro-batches, one update."""
        return accumulate * each.operations / self.rate + each.parameters * self.update


def measure(
    config: RunConfig, rows: int, what: Recompute, counted: Footprint, sides: Sides = ASSUMED
) -> Pace:
    """Time a step of `rows` sequences, or pairs with these sides; `counted` is the footprint of
    just that."""
    possible = _matmul_rate() / 2 * SECONDS / 4  # operations of a pass
    if counted.operations <= possible:
        passes, updates = _times(config, rows, what, sides)
        return Pace(counted.operations / passes, updates / counted.parameters, whole=True)
    few, many, some = _cut(config, rows, counted.operations / possible)
    longer = footprint.footprint(many, some, what, accumulated=False, sides=sides)
    times = [_times(part, some, what, sides) for part in dict.fromkeys((few, many))]
    passes, updates = times[-1]
    each = [after - before for before, after in zip(times[0], times[-1], strict=True)]
    if min(each) > 0:  # else a moment of noise, or one part alone: as much work for each second
        shorter = footprint.footprint(few, some, what, accumulated=False, sides=sides)
        more = (config.model.layers - many.model.layers) / (many.model.layers - few.model.layers)
        passes, updates = passes + more * each[0], updates + more * each[1]
        longer = replace(
            longer,
            operations=longer.operations + round(more * (longer.operations - shorter.operations)),
            parameters=longer.parameters + round(more * (longer.parameters - shorter.parameters)),
        )
    return Pace(longer.operations / passes, updates / longer.parameters, whole=False)


def _cut(config: RunConfig, rows: int, excess: float) -> tuple[RunConfig, RunConfig, int]:
    """Two parts of the work and their rows, the larger about `excess` times less than all: layers
    first, then sequences, then length."""
    model, cycle = config.model, len(config.model.patterns)
    wanted = round(model.layers / excess)
    many = min(model.layers, max(2 * cycle, wanted - wanted % cycle))
    excess *= many / model.layers
    some = max(1, min(rows, round(rows / excess)))
    excess *= some / rows
    length = model.length
    if excess > PATIENCE:
        length = max(min(SHORTEST, length), round(PATIENCE * length / excess))
    shorter = replace(model, length=length)
    few, larger = (
        replace(config, model=shorter.with_layers(layers)) for layers in (min(cycle, many), many)
    )
    return few, larger, some


def _times(config: RunConfig, rows: int, what: Recompute, sides: Sides) -> tuple[float, float]:
    """Seconds of a forward and backward pass, and of an update: medians of a few."""
    with torch.random.fork_rng(devices=[]):
        model = build(config.model)
        model.train()
        recompute.apply(model, what)
        optimizers = optim.make_optimizers(model, config.train)
        device = torch.device("cpu")
        half = precision.resolve(config.train.precision, device)
        loss: Any = precision.autocast_loss(model.loss, half, device)
        passes: list[float] = []
        updates: list[float] = []
        began = time.perf_counter()
        while _too_few(len(passes), time.perf_counter() - began):
            for optimizer in optimizers:
                optimizer.zero_grad()
            batch, caches = task_of(config.model).example(config, rows, sides)
            start = time.perf_counter()
            sums, _ = loss(batch, caches) if caches else loss(batch)
            sums.sum().backward()
            middle = time.perf_counter()
            nn.utils.clip_grad_norm_(list(model.parameters()), 1.0)
            for optimizer in optimizers:
                optimizer.step()
            passes.append(middle - start)
            updates.append(time.perf_counter() - middle)
    # The first ones pay for what is only done once, and for memory that is asked for until a heap
    # that is kept small (`tidy`) has what it needs.
    settled = len(passes) // 2
    return statistics.median(passes[settled:]), statistics.median(updates[settled:])


def _too_few(passes: int, seconds: float) -> bool:
    """Whether to time another pass: six at least, unless they take far too long."""
    return passes < 2 or seconds < SECONDS * 0.75 or (passes < 6 and seconds < SECONDS * 1.5)


def _matmul_rate() -> float:
    a, b = torch.randn(512, 512), torch.randn(512, 512)
    a @ b
    start = time.perf_counter()
    for _ in range(4):
        a @ b
    return 4 * 2 * 512**3 / (time.perf_counter() - start)
