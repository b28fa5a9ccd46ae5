"""Fitting a run to memory: the settings with which it takes no more than a limit."""

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
    "there is room to spare: without --fit a step takes less time, up to half of it in a small "
    "model, and memory up to twice what its tensors take"
)
FITTED = ("accumulation_steps", "recompute", "precision")  # settings that a fit may change


def fit_to_memory(
    config: RunConfig,
    limit: str,
    places: DataFolders,
    say: Callable[[str], None],
    saved: RunConfig | None = None,
) -> RunConfig:
    """The config with settings that fit into `limit`, such as "4GB"; else a ValueError.

    A resumed run was fitted when it began: `saved` is its config, whose settings it keeps.
    """
    allowed = parse_bytes(limit)
    malloc.limit_fragmentation()
    if saved is not None:
        kept = {name: getattr(saved.train, name) for name in FITTED}
        return replace(config, train=replace(config.train, **kept))
    largest, _, _ = pair_lengths(config, places)
    plan = planner.plan(with_vocabulary(config, places)[0], allowed, "--fit", largest)
    train = plan.config.train
    say(
        f"note: to fit into {limit}, {train.accumulation_steps} micro-batches a step, recomputing "
        f"{recompute.name(train.recompute)}, in {train.precision}: {format_bytes(plan.total)}"
    )
    if plan.fits_fragmented(allowed):
        say(f"note: {FITS_EASILY}")
    return replace(config, train=train)
