"""Memory checks of a training step: before it runs, and the error message after it failed."""

from __future__ import annotations

import re

from clearformer.config import RunConfig
from clearformer.tasks.registry import task_of_run
from clearformer.training import memory
from clearformer.training.device import device_of

# Bytes per token, block and unit of width that are kept for the backward pass, in half precision;
# a lower bound for any model.
KEPT, KEPT_RECOMPUTED = 2 * 10, 2 * 1
BATCH_BYTES = 2 * 8  # of a token and its target


def require_memory(config: RunConfig, rows: int) -> None:
    """ValueError if a micro-batch of `rows` sequences needs more memory than is available.

    The estimate is a lower bound, so that nothing is refused that would run; `plan` is exact.
    Without this check the system may kill the process without a message.
    """
    model, train = config.model, config.train
    available = memory.available_bytes()
    # Rows of a table may be shorter than the context, and fewer than a batch.
    if available is None or task_of_run(config).padded or device_of(train.device).type != "cpu":
        return
    bytes_per_unit = KEPT if train.recompute is None else KEPT_RECOMPUTED
    blocks = model.layers if not isinstance(train.recompute, int) else 1
    minimum = model.length * (
        rows * bytes_per_unit * blocks * model.width + train.batch_size * BATCH_BYTES
    )
    if minimum > available:
        raise ValueError(
            f"{rows:,} sequences of {model.length:,} tokens at a time take more than "
            f"{memory.format_bytes(minimum)}, but {memory.format_bytes(available)} of memory are "
            f"left: use a smaller --batch-size, or a larger --accumulation-steps (the same "
            f"gradient in more parts)"
        )


def out_of_memory(config: RunConfig, problem: str, fits: int | None) -> str:
    """The error message for a step that did not fit, with settings to change.

    `fits` is a number of micro-batches that fits, 0 if none does, None if none was tried.
    """
    train, model = config.train, config.model
    match = re.search(r"allocate (\d+) bytes", problem)
    more = "" if match is None else f" ({int(match[1]) / 1e6:,.0f} MB more were requested)"
    parts = [
        n
        for n in range(train.accumulation_steps + 1, train.batch_size + 1)
        if train.batch_size % n == 0
    ]
    if fits:
        rows = train.batch_size // fits
        smaller = f"--accumulation-steps {fits} (the same gradient; {rows} at a time fit)"
    elif fits is None and parts:
        smaller = f"--accumulation-steps {parts[0]} (the same gradient in {parts[0]} parts)"
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
        f"out of memory{more} with {train.batch_size // train.accumulation_steps} sequences of "
        f"{model.length} tokens at a time, {model.layers} layers of width {model.width}: use "
        f"{', or '.join(ways)}; clearformer plan predicts what fits, and saved checkpoints are kept"
    )
