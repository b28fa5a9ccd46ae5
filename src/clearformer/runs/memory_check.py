"""Steps that no memory holds, refused before anything is allocated for them."""

from __future__ import annotations

from clearformer.config import RunConfig
from clearformer.plan import planner
from clearformer.tasks.registry import task_of
from clearformer.train.device import device_of

# Activations of the width of the model that a block keeps of each token for the backward pass, in
# bytes of half precision: less than any model keeps.
KEPT, KEPT_RECOMPUTED = 2 * 10, 2 * 1
IN_A_BATCH = 2 * 8  # bytes of a token: itself and its target


def require_room(config: RunConfig, rows: int) -> None:
    """Refuse a micro-batch of `rows` sequences that takes more memory than this machine has left.

    The count is a lower bound, so that nothing is refused that would run; `plan` counts exactly. A
    system that is out of memory ends a process without a word.
    """
    model, train = config.model, config.train
    available = planner.available_bytes()
    # Rows of a table may be shorter than the context, and fewer than a batch.
    if available is None or task_of(config.model).padded or device_of(train.device).type != "cpu":
        return
    each = KEPT if train.recompute is None else KEPT_RECOMPUTED
    blocks = model.layers if not isinstance(train.recompute, int) else 1
    least = model.length * (rows * each * blocks * model.width + train.batch * IN_A_BATCH)
    if least > available:
        raise ValueError(
            f"{rows:,} sequences of {model.length:,} tokens at a time take more than "
            f"{planner.shown(least)}, but {planner.shown(available)} of memory are left: use a "
            f"smaller --batch, or a larger --accumulate (the same gradient in more parts)"
        )
