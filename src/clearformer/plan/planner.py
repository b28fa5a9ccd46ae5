"""What a run needs, and the settings with which it fits: a plan before the run.

Memory is counted by `footprint`, speed measured by `pace`. Where a batch does not fit, it is cut
into more micro-batches (the same gradient, no more work); where that would make them too small
to be quick, blocks are recomputed too.
"""

from __future__ import annotations

import gc
import math
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch

from clearformer.config import RunConfig
from clearformer.plan import footprint
from clearformer.plan.footprint import ASSUMED, Footprint, Sides
from clearformer.tasks.registry import task_of
from clearformer.train import precision
from clearformer.train.recompute import Recompute

UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40, "K": 10**3, "M": 10**6}
UNITS |= {"G": 10**9, "T": 10**12}
LARGEST = 10**18  # bytes of a size
# What a run loads as it goes (kernels, samples, the curve at its end) and gaps between small
# tensors, as measured.
LATER = 90 * 10**6
# The same, and kernels in half precision, where batches differ in length (`tidy`).
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

    def fits_untidied(self, limit: int) -> bool:
        """Whether there is room for the gaps of a heap that is left alone (`tidy`), too."""
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
        return replace(config, train=replace(config.train, recompute=what, accumulate=accumulate))

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
    return max(1, -(-task_of(config.model).rows(config, sides) // config.train.accumulate))


def micro_tokens(config: RunConfig, sides: Sides) -> int:
    """Tokens at a time, padding counted; of pairs, those of the longer side."""
    return micro_rows(config, sides) * task_of(config.model).length(sides)


def size(text: str) -> int:
    """Bytes of "12GB", "500 MB" or "4GiB"."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    unit = None if found is None else UNITS.get(found[2].upper())
    if found is None or unit is None or not float(found[1]) * unit >= 1:
        raise ValueError(f"{text!r:.60} is no size of memory: write it as 12GB, 500MB or 4GiB")
    if float(found[1]) * unit > LARGEST:
        raise ValueError(f"{text!r:.60} is more memory than there is: write at most 1000000TB")
    return round(float(found[1]) * unit)


def shown(count: float) -> str:
    """Bytes as people say them; the reverse of `size`."""
    for unit, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB")):
        if count >= unit:
            if count >= 99.95 * unit:
                return f"{count / unit:.0f} {name}"
            text = f"{count / unit:.{2 if count < 9.995 * unit else 1}f}"  # three digits
            return f"{text[:-1] if text.endswith('0') and text[-3] == '.' else text} {name}"
    return f"{count / 1000:.1f} KB"


def available_bytes() -> int | None:
    """Memory that this machine could give now; None where it does not say."""
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1024


def base_bytes() -> int:
    """What this process takes before there is a model, once torch has loaded what it needs."""
    import torch._subclasses.fake_tensor  # which planning itself brings along

    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    rule = torch.optim.AdamW(layer.parameters(), fused=True)
    with torch.random.fork_rng(devices=[]):
        layer(torch.zeros(2, 3, 16)).sum().backward()
    rule.step()
    del layer, rule
    gc.collect()
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 + LATER
    except OSError:
        return 400 * 10**6


@lru_cache(maxsize=8)  # the search comes by some settings twice, and a long context takes a while
def _counted(config: RunConfig, given: Given) -> Plan:
    train, rows = config.train, micro_rows(config, given.sides)
    counted = footprint.footprint(
        config, rows, train.recompute, accumulated=train.accumulate > 1, sides=given.sides
    )
    return Plan(config, counted, given)


def _more_than(what: Recompute) -> list[Recompute]:
    """Ways to keep less, from what is asked for to the least."""
    order: list[Recompute] = [None, "attention", 2, 1]
    return order[order.index(what) :] if what in order else [what, 1]


def _cuts(config: RunConfig, sides: Sides, last: bool) -> list[int]:
    """Micro-batches to try: down to a quick size, or as a last resort down to one sequence."""
    train = config.train
    small = [n for n in range(1, math.isqrt(train.batch) + 1) if train.batch % n == 0]
    divisors = {*small, *(train.batch // n for n in small)}
    parts = sorted(n for n in divisors if n >= train.accumulate)

    def quick(accumulate: int) -> bool:
        parted = replace(config, train=replace(train, accumulate=accumulate))
        return micro_tokens(parted, sides) >= QUICK

    return parts if last else [n for n in parts if quick(n)] or parts[:1]


def _impossible(config: RunConfig, limit: int, given: Given, limit_flag: str) -> str:
    model, train, base = config.model, config.train, given.base
    least = replace(config, train=replace(train, recompute=1, accumulate=train.batch))
    found = _counted(least, given)
    parts = found.counted
    more = f"{limit_flag} {math.ceil(found.safe / 10**8) / 10:g}GB or more"
    if limit <= base:  # no other model would help
        return (
            f"{model.name} does not fit into {shown(limit)}: Python and torch alone take "
            f"{shown(base)}, whatever the model. It would with {more}"
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
    return (
        f"{model.name} does not fit into {shown(limit)}: with one sequence at a time and every "
        f"block recomputed it takes {shown(found.total)} (weights {shown(parts.weights)}, "
        f"gradients {shown(parts.gradients)}, optimizer {shown(parts.optimizer)}, activations "
        f"{shown(parts.activations)}, Python and torch {shown(base)}), and a tenth more must be "
        f"free. It would with "
        f"{'; or '.join(ways)}"
    )
