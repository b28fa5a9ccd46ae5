"""Memory that does not suffice: settings that fit beforehand, and what to say afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from clearformer.config import RunConfig


def fitted(
    config: RunConfig,
    limit: str,
    data_dir: Path | None,
    say: Callable[[str], Any],
    saved: RunConfig | None = None,
) -> RunConfig:
    """The config with what makes it fit, as `clearformer plan --memory` finds it.

    A run that goes on was planned when it began, and stays as it is.
    """
    from clearformer.cli.plan import UNTIDIED, known, known_sides
    from clearformer.plan import planner
    from clearformer.train import malloc, recompute

    bytes_allowed = planner.size(limit)
    malloc.keep_small()
    if saved is not None:
        own = {
            name: getattr(saved.train, name) for name in ("accumulate", "recompute", "precision")
        }
        return replace(config, train=replace(config.train, **own))
    largest, _, _ = known_sides(config, data_dir)
    found = planner.plan(known(config, data_dir)[0], bytes_allowed, "--fit", largest)
    train = found.config.train
    say(
        f"note: to fit into {limit}, {train.accumulate} micro-batches a step, recomputing "
        f"{recompute.name(train.recompute)}, in {train.precision}: {planner.shown(found.total)}"
    )
    if found.fits_untidied(bytes_allowed):
        say(f"note: {UNTIDIED}")
    return replace(config, train=train)


def out_of_memory(config: RunConfig, problem: str, fits: int | None) -> str:
    """What to change when a step does not fit, with the numbers of this run.

    In `fits` micro-batches a step was found to fit, 0: in none; None: nothing was tried.
    """
    train, model = config.train, config.model
    found = re.search(r"allocate (\d+) bytes", problem)
    more = "" if found is None else f" ({int(found[1]) / 1e6:,.0f} MB more were asked for)"
    parts = [n for n in range(train.accumulate + 1, train.batch + 1) if train.batch % n == 0]
    if fits:
        smaller = f"--accumulate {fits} (the same gradient; {train.batch // fits} at a time fit)"
    elif fits is None and parts:
        smaller = f"--accumulate {parts[0]} (the same gradient in {parts[0]} parts)"
    else:
        smaller = f"a shorter --length than {model.length} (not even one sequence fits)"
    ways = [
        smaller,
        "--recompute 1 (every block twice, the same gradient)"
        if train.recompute != 1
        else "a smaller --width",
        f"fewer --layers than {model.layers}",
    ]
    return (
        f"out of memory{more} with {train.batch // train.accumulate} sequences of {model.length} "
        f"tokens at a time, {model.layers} layers of width {model.width}: use "
        f"{', or '.join(ways)}; clearformer plan tells before what fits, and what was saved is kept"
    )
