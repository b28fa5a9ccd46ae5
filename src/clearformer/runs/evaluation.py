"""Evaluation of a run during training: metrics, comparison with the best, a sample."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch

from clearformer.adapters.attach import attach
from clearformer.builder import build, outline
from clearformer.runs import checkpoint_choice, state
from clearformer.runs.fingerprint import Model
from clearformer.training import precision
from clearformer.training.events import Evaluation

if TYPE_CHECKING:
    from clearformer.runs.run import Run


def evaluate(run: Run, progress: float) -> Evaluation:
    """Evaluate on the validation data, and record in the state how it compares with the best."""
    now = run.state
    device = next(run.model.parameters()).device
    with now.ema.applied_to(run.model) if now.ema else nullcontext():
        model = run.parallel.full_model(run.model, lambda: _outline(run))
        with precision.autocast(run.precision, device):
            measured = run.task.evaluate(model)
            figures = run.group.broadcast(measured.figures)
        sample = _sample(run, model)
    value = figures[run.task.metric]
    sign = 1 if run.task.larger_is_better else -1
    improved = now.best is None or sign * value > sign * now.best["value"]
    best = improved and math.isfinite(value)  # nothing compares as better than NaN
    now.since_best = 0 if best else now.since_best + 1
    if best:
        now.best = {"step": now.step, "value": value}
        now.scores = torch.tensor(measured.scores, dtype=torch.float64)
    scores = None if now.scores is None else now.scores.tolist()
    compared = checkpoint_choice.compared(scores, measured.scores, run.task.larger_is_better)
    now.last = {
        "step": now.step,
        "value": value if math.isfinite(value) else None,
        "finished": progress >= 1,
        **(compared or {}),
    }
    # By progress rather than by counting: evaluations that a long step skipped are not repeated.
    due = math.floor(min(progress, 1.0) * run.config.train.evaluations)
    now.evaluated = max(now.evaluated + 1, due)
    run.protocol = measured.protocol
    return Evaluation(now.step, figures, best, sample, measured.error)


def _outline(run: Run) -> Model:
    """A model without weights, for those of a sharded model."""
    if run.make is build:
        model = outline(run.config.model)
    else:
        model = run.make(run.config.model, run.config.train.seed)
        model.load_state_dict(state.buffers(run.model), strict=False)
    if run.adapter is not None:
        attach(model, run.adapter)
        for name, buffer in run.model.named_buffers():  # frozen matrices that are not sharded
            path, _, own = name.rpartition(".")
            setattr(model.get_submodule(path), own, buffer)
    return model


def _sample(run: Run, model: Model) -> str | None:
    """Text from the model. It is for display alone, so that an error does not end the run."""
    if run.sample is None:
        return None
    try:
        return run.sample(run, model)
    except Exception as problem:
        reason = " ".join(str(problem).split()) or type(problem).__name__
        run.say(f"note: step {run.state.step} has no sample text: {reason}")
        return None
