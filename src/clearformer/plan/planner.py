"""Plan of a run: its memory, and the settings with which it fits into a limit.

Memory is counted by `footprint`, speed is measured by `throughput`. A batch that does not fit is
split into more micro-batches (the same gradient, no additional work); once these would be too
small to be efficient, blocks are recomputed as well.
"""

from __future__ import annotations

import gc
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch

from clearformer.config import RunConfig
from clearformer.plan import footprint
from clearformer.plan.footprint import ASSUMED_LENGTHS, Footprint
from clearformer.tasks.registry import task_of_run
from clearformer.tasks.task import PairLengths
from clearformer.training import precision
from clearformer.training.memory import format_bytes
from clearformer.training.recompute import Recompute

# Measured: what a run loads lazily (kernels, samples, the plot at its end), and fragmentation by
# small tensors.
LAZY_BYTES = 90 * 10**6
# Measured: kernels in half precision for batches of different lengths (`malloc`).
HALF_KERNEL_BYTES = 80 * 10**6
SAFETY_FACTOR = 1.1  # plans were off by up to 10 % (docs/results.md)
FRAGMENTATION = 2  # largest measured ratio of heap to tensors
EFFICIENT_TOKENS = 1024  # products of smaller micro-batches are less efficient


@dataclass(frozen=True)
class Fixed:
    """Sizes that do not depend on the settings of a run."""

    base: int  # bytes of Python, torch and their libraries
    pair_lengths: PairLengths  # tokens of a pair in the data


@dataclass(frozen=True)
class Plan:
    """The settings of a run and its footprint."""

    config: RunConfig
    counted: Footprint
    fixed: Fixed

    @property
    def base(self) -> int:
        return self.fixed.base

    @property
    def rows(self) -> int:
        return micro_rows(self.config, self.fixed.pair_lengths)

    @property
    def total(self) -> int:
        return self.base + self.counted.total

    @property
    def safe(self) -> int:
        """Bytes that suffice even if the plan is off by `SAFETY_FACTOR`."""
        return math.ceil(SAFETY_FACTOR * self.total)

    def fits_fragmented(self, limit: int) -> bool:
        """Whether it also fits if fragmentation is not limited (`malloc`)."""
        return self.base + FRAGMENTATION * self.counted.total <= limit


def plan(
    config: RunConfig,
    limit: int | None = None,
    limit_flag: str = "--memory",
    pair_lengths: PairLengths = ASSUMED_LENGTHS,
) -> Plan:
    """The run as configured, or the fastest settings that fit into `limit` bytes.

    ValueError if none fit; it names `limit_flag`, which sets the limit. `pair_lengths` are those
    of the largest batch.
    """
    half = precision.resolve(config.train.precision, torch.device("cpu"))
    config = replace(config, train=replace(config.train, precision=half))
    many_shapes = task_of_run(config).padded or config.data.masking is not None
    base = base_bytes() + (HALF_KERNEL_BYTES if half != "float32" and many_shapes else 0)
    fixed = Fixed(base, pair_lengths)
    configured = _count(config, fixed)
    if limit is None or configured.safe <= limit:
        return configured
    for recomputed in _recompute_options(config.train.recompute) if limit > base else []:
        fitting = _fewest_micro_batches(config, recomputed, limit, fixed)
        if fitting is not None:
            return fitting
    raise ValueError(_does_not_fit(config, limit, fixed, limit_flag))


def _fewest_micro_batches(
    config: RunConfig, recomputed: Recompute, limit: int, fixed: Fixed
) -> Plan | None:
    """The plan with the fewest micro-batches that fit, if any do."""

    def split(accumulate: int) -> RunConfig:
        return replace(
            config, train=replace(config.train, recompute=recomputed, accumulation_steps=accumulate)
        )

    counts = _micro_batch_counts(config, fixed.pair_lengths, last=recomputed == 1)
    smallest = _count(split(counts[-1]), fixed)
    if smallest.safe > limit or len(counts) == 1:
        return smallest if smallest.safe <= limit else None
    largest = _count(split(counts[0]), fixed)
    row_bytes = (largest.safe - smallest.safe) / max(1, largest.rows - smallest.rows)
    for accumulate in counts[:-1]:
        # Memory is about linear in the rows; counting takes a second, so estimate first.
        rows = micro_rows(split(accumulate), fixed.pair_lengths)
        if smallest.safe + row_bytes * (rows - smallest.rows) <= 1.02 * limit:
            candidate = _count(split(accumulate), fixed)
            if candidate.safe <= limit:
                return candidate
    return smallest


def micro_rows(config: RunConfig, pair_lengths: PairLengths) -> int:
    """Sequences or pairs of a micro-batch."""
    return max(
        1, -(-task_of_run(config).rows(config, pair_lengths) // config.train.accumulation_steps)
    )


def micro_tokens(config: RunConfig, pair_lengths: PairLengths) -> int:
    """Tokens of a micro-batch with padding; of pairs, those of the longer side."""
    return micro_rows(config, pair_lengths) * task_of_run(config).length(pair_lengths)


def base_bytes() -> int:
    """Memory of this process before a model is built, with the lazy parts of torch loaded."""
    import torch._subclasses.fake_tensor  # used by planning itself

    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    optimizer = torch.optim.AdamW(layer.parameters(), fused=True)
    with torch.random.fork_rng(devices=[]):
        layer(torch.zeros(2, 3, 16)).sum().backward()
    optimizer.step()
    del layer, optimizer
    gc.collect()
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 + LAZY_BYTES
    except OSError:
        return 400 * 10**6


@lru_cache(maxsize=8)  # the search counts some settings twice, and a long context takes a while
def _count(config: RunConfig, fixed: Fixed) -> Plan:
    train, rows = config.train, micro_rows(config, fixed.pair_lengths)
    counted = footprint.footprint(
        config,
        rows,
        train.recompute,
        accumulated=train.accumulation_steps > 1,
        pair_lengths=fixed.pair_lengths,
    )
    return Plan(config, counted, fixed)


def _recompute_options(recomputed: Recompute) -> list[Recompute]:
    """Settings of `recompute`, from the configured one to the one with the least memory."""
    order: list[Recompute] = [None, "attention", 2, 1]
    return order[order.index(recomputed) :] if recomputed in order else [recomputed, 1]


def _micro_batch_counts(config: RunConfig, pair_lengths: PairLengths, last: bool) -> list[int]:
    """Numbers of micro-batches to try: of an efficient size, or as a last resort of any size."""
    train = config.train
    small = [n for n in range(1, math.isqrt(train.batch_size) + 1) if train.batch_size % n == 0]
    divisors = {*small, *(train.batch_size // n for n in small)}
    parts = sorted(n for n in divisors if n >= train.accumulation_steps)

    def efficient(accumulate: int) -> bool:
        split = replace(config, train=replace(train, accumulation_steps=accumulate))
        return micro_tokens(split, pair_lengths) >= EFFICIENT_TOKENS

    return parts if last else [n for n in parts if efficient(n)] or parts[:1]


def _does_not_fit(config: RunConfig, limit: int, fixed: Fixed, limit_flag: str) -> str:
    model, train, base = config.model, config.train, fixed.base
    minimal = replace(
        config, train=replace(train, recompute=1, accumulation_steps=train.batch_size)
    )
    least = _count(minimal, fixed)
    parts = least.counted
    more = f"{limit_flag} {math.ceil(least.safe / 10**8) / 10:g}GB or more"
    if limit <= base:  # no other model would help
        return (
            f"{model.name} does not fit into {format_bytes(limit)}: Python and torch alone take "
            f"{format_bytes(base)}, whatever the model. It would with {more}"
        )
    ways = [more]
    cycle = len(model.patterns)
    if model.layers > cycle:
        one = _count(replace(minimal, model=replace(model, layers=cycle)), fixed)
        layer_bytes = (least.safe - one.safe) / (model.layers - cycle)
        layers = cycle + math.floor((limit - one.safe) / layer_bytes)
        if layers >= cycle:
            ways.append(f"--model.layers {layers - layers % cycle}")
    shorter = replace(minimal, model=replace(model, length=max(1, model.length // 4)))
    if _count(shorter, fixed).safe <= limit:
        ways.append(f"--model.length {shorter.model.length}")
    ways.append("a smaller preset or --model.width")
    ways.append("several GPUs that share the weights (plan --gpus 8)")
    sizes = {
        "weights": parts.weights,
        "gradients": parts.gradients,
        "optimizer": parts.optimizer,
        "activations": parts.activations,
        "Python and torch": base,
    }
    by_part = ", ".join(f"{name} {format_bytes(count)}" for name, count in sizes.items())
    return (
        f"{model.name} does not fit into {format_bytes(limit)}: with one sequence at a time and "
        f"every block recomputed it takes {format_bytes(least.total)} ({by_part}), and 10 % more "
        f"must be free. It would with {'; or '.join(ways)}"
    )
