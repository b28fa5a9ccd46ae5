"""Training throughput of this machine, measured by a few real steps.

A model that is too large for this is timed at two smaller depths, and the time of the remaining
layers is extrapolated; embeddings and loss are in both measurements. Only if two layers are still
too slow are there fewer sequences and, last, shorter ones: smaller tensors may be faster for their
size, because of caches and pages.
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
from clearformer.plan.footprint import ASSUMED_LENGTHS, Footprint
from clearformer.tasks.registry import task_of_run
from clearformer.tasks.task import PairLengths
from clearformer.training import optim, precision, recompute
from clearformer.training.recompute import Recompute

SECONDS = 8.0  # approximate time of a measurement
MIN_LENGTH = 256  # tokens of a shortened sequence
# Sequences are shortened only above this multiple of SECONDS, since attention then costs less.
PATIENCE = 4


@dataclass(frozen=True)
class Throughput:
    """Measured speed of a machine."""

    rate: float  # operations per second, forward and backward
    update: float  # seconds of an update per parameter
    whole: bool  # whether the full model was measured

    def seconds(self, micro_batch: Footprint, accumulate: int) -> float:
        """Seconds of a step of `accumulate` micro-batches and one update."""
        passes = accumulate * micro_batch.operations / self.rate
        return passes + micro_batch.parameters * self.update


def measure(
    config: RunConfig,
    rows: int,
    recomputed: Recompute,
    counted: Footprint,
    pair_lengths: PairLengths = ASSUMED_LENGTHS,
    seconds: float | None = None,
) -> Throughput:
    """Time a step of `rows` sequences, or of pairs with these lengths, whose footprint is
    `counted`; about `seconds` are taken for it, 8 by default."""
    seconds = SECONDS if seconds is None else seconds
    possible = _matmul_rate() / 2 * seconds / 4  # operations of a pass that is short enough
    if counted.operations <= possible:
        passes, updates = _step_seconds(config, rows, recomputed, pair_lengths, seconds)
        return Throughput(counted.operations / passes, updates / counted.parameters, whole=True)
    few, many, some = _reduced(config, rows, counted.operations / possible)
    longer = footprint.footprint(
        many, some, recomputed, accumulated=False, pair_lengths=pair_lengths
    )
    times = [
        _step_seconds(part, some, recomputed, pair_lengths, seconds)
        for part in dict.fromkeys((few, many))
    ]
    passes, updates = times[-1]
    each = [after - before for before, after in zip(times[0], times[-1], strict=True)]
    if min(each) > 0:  # else noise, or a single depth: the same rate is assumed for all layers
        shorter = footprint.footprint(
            few, some, recomputed, accumulated=False, pair_lengths=pair_lengths
        )
        more = (config.model.layers - many.model.layers) / (many.model.layers - few.model.layers)
        passes, updates = passes + more * each[0], updates + more * each[1]
        longer = replace(
            longer,
            operations=longer.operations + round(more * (longer.operations - shorter.operations)),
            parameters=longer.parameters + round(more * (longer.parameters - shorter.parameters)),
        )
    return Throughput(longer.operations / passes, updates / longer.parameters, whole=False)


def _reduced(config: RunConfig, rows: int, excess: float) -> tuple[RunConfig, RunConfig, int]:
    """Two configs with fewer layers, and their rows; the larger has about 1 / `excess` of the work.

    Layers are reduced first, then sequences, then the length.
    """
    model, cycle = config.model, len(config.model.patterns)
    target = round(model.layers / excess)
    many = min(model.layers, max(2 * cycle, target - target % cycle))
    excess *= many / model.layers
    some = max(1, min(rows, round(rows / excess)))
    excess *= some / rows
    length = model.length
    if excess > PATIENCE:
        length = max(min(MIN_LENGTH, length), round(PATIENCE * length / excess))
    shorter = replace(model, length=length)
    few, larger = (
        replace(config, model=shorter.with_layers(layers)) for layers in (min(cycle, many), many)
    )
    return few, larger, some


def _step_seconds(
    config: RunConfig,
    rows: int,
    recomputed: Recompute,
    pair_lengths: PairLengths,
    seconds: float,
) -> tuple[float, float]:
    """Median seconds of a forward and backward pass, and of an update."""
    with torch.random.fork_rng(devices=[]):
        model = build(config.model)
        model.train()
        recompute.apply(model, recomputed)
        optimizers = optim.make_optimizers(model, config.train)
        device = torch.device("cpu")
        half = precision.resolve(config.train.precision, device)
        loss: Any = precision.autocast_loss(model.loss, half, device)
        passes: list[float] = []
        updates: list[float] = []
        began = time.perf_counter()
        while _time_another(len(passes), time.perf_counter() - began, seconds):
            for optimizer in optimizers:
                optimizer.zero_grad()
            batch, caches = task_of_run(config).example(config, rows, pair_lengths)
            start = time.perf_counter()
            sums, _ = loss(batch, caches) if caches else loss(batch)
            sums.sum().backward()
            middle = time.perf_counter()
            nn.utils.clip_grad_norm_(list(model.parameters()), 1.0)
            for optimizer in optimizers:
                optimizer.step()
            passes.append(middle - start)
            updates.append(time.perf_counter() - middle)
    # The first passes include one-time work and the growth of the heap (`malloc`).
    settled = len(passes) // 2
    return statistics.median(passes[settled:]), statistics.median(updates[settled:])


def _time_another(passes: int, elapsed: float, seconds: float) -> bool:
    """Whether to time another pass: at least six, unless they take far too long."""
    return passes < 2 or elapsed < seconds * 0.75 or (passes < 6 and elapsed < seconds * 1.5)


def _matmul_rate() -> float:
    a, b = torch.randn(512, 512), torch.randn(512, 512)
    a @ b
    start = time.perf_counter()
    for _ in range(4):
        a @ b
    return 4 * 2 * 512**3 / (time.perf_counter() - start)
