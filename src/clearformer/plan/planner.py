"""What a run needs, and the settings with which it fits: a plan before the run.

Memory is counted by `footprint`, speed measured by `pace`. Where a batch does not fit, it is cut
into more micro-batches (the same gradient, no more work); where that would make them too small
to be quick, blocks are recomputed too.
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
from clearformer.plan.footprint import ASSUMED, Footprint, Sides
from clearformer.tasks.registry import task_of
from clearformer.training import precision
from clearformer.training.memory import format_bytes
from clearformer.training.recompute import Recompute

# What a run loads as it goes (kernels, samples, the curve at its end) and gaps between small
# tensors, as measured.
LATER = 90 * 10**6
# The same, and kernels in half precision, where batches differ in length (`malloc`).
KERNELS = 80 * 10**6
RESERVE = 1.1  # times what is planned must fit: plans were off by up to a tenth (docs/results.md)
GAPS = 2  # times what the tensors take, with the gaps between them: the most that was measured
QUICK = 1024  # tokens of a micro-batch below which a product is no longer as quick


@dataclass(frozen=True)
class Given:
    """What no setting of a run changes."""

    base: int  # bytes of Python, torch and their libraries
    sides: Sides  # tokens of a pair, as the data has them


@dataclass(frozen=True)
class Plan:
    """A run that fits, and what it takes."""

    config: RunConfig
    counted: Footprint
    given: Given

    @property
    def base(self) -> int:
        return self.given.base

    @property
    def rows(self) -> int:
        return micro_rows(self.config, self.given.sides)

    @property
    def total(self) -> int:
        return self.base + self.counted.total

    @property
    def safe(self) -> int:
        """Bytes with which it fits even if the plan is off by as much as any was."""
        return math.ceil(RESERVE * self.total)

    def fits_fragmented(self, limit: int) -> bool:
        """Whether it also fits with the fragmentation of an unlimited heap (`malloc`)."""
        return self.base + GAPS * self.counted.total <= limit


def plan(
    config: RunConfig,
    limit: int | None = None,
    limit_flag: str = "--memory",
    sides: Sides = ASSUMED,
) -> Plan:
    """The run as it is, or the quickest that fits into `limit` bytes; else a ValueError, which
    names the flag that sets the limit. Pairs have these sides in their largest batch."""
    half = precision.resolve(config.train.precision, torch.device("cpu"))
    config = replace(config, train=replace(config.train, precision=half))
    differ = task_of(config.model).padded or config.data.masking is not None
    base = base_bytes() + (KERNELS if half != "float32" and differ else 0)
    given = Given(base, sides)
    asked = _counted(config, given)
    if limit is None or asked.safe <= limit:
        return asked
    for what in _more_than(config.train.recompute) if limit > base else []:
        found = _largest(config, what, limit, given)
        if found is not None:
            return found
    raise ValueError(_impossible(config, limit, given, limit_flag))


def _largest(config: RunConfig, what: Recompute, limit: int, given: Given) -> Plan | None:
    """The fewest micro-batches that fit, with `what` recomputed."""

    def cut(accumulate: int) -> RunConfig:
        return replace(
            config, train=replace(config.train, recompute=what, accumulation_steps=accumulate)
        )

    cuts = _cuts(config, given.sides, last=what == 1)
    least = _counted(cut(cuts[-1]), given)
    if least.safe > limit or len(cuts) == 1:
        return least if least.safe <= limit else None
    most = _counted(cut(cuts[0]), given)
    each = (most.safe - least.safe) / max(1, most.rows - least.rows)
    for accumulate in cuts[:-1]:
        # About a straight line in the rows; counting anew costs a second.
        rows = micro_rows(cut(accumulate), given.sides)
        if least.safe + each * (rows - least.rows) <= 1.02 * limit:
            found = _counted(cut(accumulate), given)
            if found.safe <= limit:
                return found
    return least


def micro_rows(config: RunConfig, sides: Sides) -> int:
    """Sequences or pairs at a time."""
    return max(1, -(-task_of(config.model).rows(config, sides) // config.train.accumulation_steps))


def micro_tokens(config: RunConfig, sides: Sides) -> int:
    """Tokens at a time, padding counted; of pairs, those of the longer side."""
    return micro_rows(config, sides) * task_of(config.model).length(sides)


def base_bytes() -> int:
    """What this process takes before there is a model, once torch has loaded what it needs."""
    import torch._subclasses.fake_tensor  # which planning itself brings along

    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    optimizer = torch.optim.AdamW(layer.parameters(), fused=True)
    with torch.random.fork_rng(devices=[]):
        layer(torch.zeros(2, 3, 16)).sum().backward()
    optimizer.step()
    del layer, optimizer
    gc.collect()
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 + LATER
    except OSError:
        return 400 * 10**6


@lru_cache(maxsize=8)  # the search comes by some settings twice, and a long context takes a while
def _counted(config: RunConfig, given: Given) -> Plan:
    train, rows = config.train, micro_rows(config, given.sides)
    counted = footprint.footprint(
        config, rows, train.recompute, accumulated=train.accumulation_steps > 1, sides=given.sides
    )
    return Plan(config, counted, given)


def _more_than(what: Recompute) -> list[Recompute]:
    """Ways to keep less, from what is asked for to the least."""
    order: list[Recompute] = [None, "attention", 2, 1]
    return order[order.index(what) :] if what in order else [what, 1]


def _cuts(config: RunConfig, sides: Sides, last: bool) -> list[int]:
    """Micro-batches to try: down to a quick size, or as a last resort down to one sequence."""
    train = config.train
    small = [n for n in range(1, math.isqrt(train.batch_size) + 1) if train.batch_size % n == 0]
    divisors = {*small, *(train.batch_size // n for n in small)}
    parts = sorted(n for n in divisors if n >= train.accumulation_steps)

    def quick(accumulate: int) -> bool:
        parted = replace(config, train=replace(train, accumulation_steps=accumulate))
        return micro_tokens(parted, sides) >= QUICK

    return parts if last else [n for n in parts if quick(n)] or parts[:1]


def _impossible(config: RunConfig, limit: int, given: Given, limit_flag: str) -> str:
    model, train, base = config.model, config.train, given.base
    least = replace(config, train=replace(train, recompute=1, accumulation_steps=train.batch_size))
    found = _counted(least, given)
    parts = found.counted
    more = f"{limit_flag} {math.ceil(found.safe / 10**8) / 10:g}GB or more"
    if limit <= base:  # no other model would help
        return (
            f"{model.name} does not fit into {format_bytes(limit)}: Python and torch alone take "
            f"{format_bytes(base)}, whatever the model. It would with {more}"
        )
    ways = [more]
    cycle = len(model.patterns)
    if model.layers > cycle:
        one = _counted(replace(least, model=replace(model, layers=cycle)), given)
        each = (found.safe - one.safe) / (model.layers - cycle)
        layers = cycle + math.floor((limit - one.safe) / each)
        if layers >= cycle:
            ways.append(f"--model.layers {layers - layers % cycle}")
    shorter = replace(least, model=replace(model, length=max(1, model.length // 4)))
    if _counted(shorter, given).safe <= limit:
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
        f"every block recomputed it takes {format_bytes(found.total)} ({by_part}), and a tenth "
        f"more must be free. It would with {'; or '.join(ways)}"
    )
