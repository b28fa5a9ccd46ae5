"""Saving a checkpoint of a run, after checking that its weights are finite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clearformer.runs import checkpoint, opening, state
from clearformer.runs.metrics import MetricsFile
from clearformer.training.events import Saved
from clearformer.training.step import NonFiniteError

if TYPE_CHECKING:
    from clearformer.runs.run import Run


def save(run: Run, metrics: MetricsFile, samples: MetricsFile, seconds: float) -> Saved:
    """Write a checkpoint of this step, and remove those that are no longer kept."""
    now, group = run.state, run.group
    _require_finite(run)
    group.on_main(metrics.require_in_place)  # a deleted folder is not created again
    now.seconds = seconds
    for file in (metrics, samples):
        file.sync()
    reached = run.faults.reached(now.step)
    best = now.best["step"] if now.best else None
    try:
        saved = state.save(
            run.checkpoints,
            now,
            run.config,
            run.task.tokenizer.to_json(),
            {**run.facts, **opening.environment(run)},
            reached,
            run.parallel,
        )
        run.saved_step = now.step
        train = run.config.train
        also = checkpoint.is_log_spaced if train.log_checkpoints else None
        group.on_main(
            lambda: checkpoint.prune(run.checkpoints, train.keep_checkpoints, best, reached, also)
        )
    except (OSError, ValueError):
        metrics.require_in_place()  # if the folder is gone, that is the reason
        raise
    metrics.append({"event": "checkpoint", "step": now.step})
    return Saved(now.step, saved.folder)


def _require_finite(run: Run) -> None:
    """Refuse to save NaN: an update can overflow although its gradient is finite."""
    local = [run.parallel.local_tensor(p.detach()) for p in run.model.parameters()]
    # The sum is quick, and not finite if any of its terms is not.
    broken = any(not p.sum().isfinite() and not p.isfinite().all() for p in local)
    if not run.group.max([float(broken)])[0]:
        return
    kept = f"step {run.saved_step} is kept" if run.saved_step >= 0 else "there is none yet"
    raise NonFiniteError(
        f"step {run.state.step}: the update made weights NaN or infinite (last checkpoint: "
        f"{kept}): the learning rate, {run.config.train.learning_rate:.4g}, is too large; lower "
        f"--train.learning-rate"
    )
