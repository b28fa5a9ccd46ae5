"""Settings with which a run fits into a memory limit (`--fit`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from clearformer.config import RunConfig
from clearformer.data import DataFolders
from clearformer.plan import planner
from clearformer.plan.data_sizes import pair_lengths, with_vocabulary
from clearformer.training import malloc, recompute
from clearformer.training.memory import format_bytes, parse_bytes

FITS_EASILY = (
    "memory is sufficient without --fit: without it a step is faster (up to twice as fast for a "
    "small model) and takes up to twice the memory of its tensors"
)
FITTED = ("accumulation_steps", "recompute", "precision")  # settings that --fit may change


def fit_to_memory(
    config: RunConfig,
    limit: str,
    folders: DataFolders,
    say: Callable[[str], None],
    saved: RunConfig | None = None,
) -> RunConfig:
    """The config with settings that fit into `limit`, such as "4GB"; ValueError if none do.

    A resumed run keeps the fitted settings of `saved`, its config.
    """
    allowed = parse_bytes(limit)
    malloc.limit_fragmentation()
    if saved is not None:
        kept = {name: getattr(saved.train, name) for name in FITTED}
        return replace(config, train=replace(config.train, **kept))
    largest, _, _ = pair_lengths(config, folders)
    plan = planner.plan(with_vocabulary(config, folders)[0], allowed, "--fit", largest)
    train = plan.config.train
    say(
        f"note: to fit into {limit}: {train.accumulation_steps} micro-batches per step, "
        f"recomputing {recompute.describe(train.recompute)}, {train.precision}; estimated memory "
        f"{format_bytes(plan.total)}"
    )
    if plan.fits_fragmented(allowed):
        say(f"note: {FITS_EASILY}")
    return replace(config, train=train)
