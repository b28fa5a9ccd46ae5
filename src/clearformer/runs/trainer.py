"""Optimizer steps of a run: the compiled loss, micro-batches, and diagnosis of NaN."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from clearformer.training import diagnose, microbatch, precision, step
from clearformer.training.step import NonFiniteError
from clearformer.training.torch_compile import compiled, pays

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clearformer.runs.run import Run


def should_compile(run: Run) -> bool:
    """Whether to compile the loss; it depends on the config alone, so that a resume decides alike.

    By default only batches of one shape are compiled: each new length would compile again.
    """
    train = run.config.train
    if train.compile != "auto":
        return train.compile == "on"
    one_shape = run.task.same_shape and run.parallel.compile_by_default
    tokens = 0 if train.minutes else run.total_steps * train.batch_size * run.config.model.length
    return one_shape and pays(run.model, train.minutes, tokens)


class Trainer:
    """Takes the steps of a run, one at a time."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.device = next(run.model.parameters()).device
        compiler = partial(compiled, say=run.say) if should_compile(run) else None
        loss = run.parallel.loss(run.model, compiler)
        self.loss = precision.autocast_loss(loss, run.precision, self.device)

    def step(self, lr: float) -> step.StepResult:
        """Train on the next batch; `lr` is named if the loss is not finite."""
        run, state = self.run, self.run.state
        run.model.train()
        batch = run.task.batch(state.step)
        parts = microbatch.split(
            batch, run.micro_batches, self.device, run.group.rank, run.group.world_size
        )
        loss = run.faults.spoil(state.step + 1, self.loss)
        memory = state.memory
        if memory is not None:
            if run.task.fresh(state.step):
                memory.forget()
            loss = memory.using(loss, parts)
        try:
            result = step.train_step(
                loss,
                run.model.parameters(),
                state.optimizers,
                parts,
                microbatch.count_targets(batch),
                run.config.train.gradient_clip,
                state.scaling,
                run.parallel,
            )
        except NonFiniteError as problem:
            raise self._explained(problem, parts, lr) from None
        if memory is not None:
            # Hidden states that overflowed must not be used again.
            memory.advance() if math.isfinite(result.loss) else memory.forget()
        return result

    def _explained(self, problem: Exception, parts: Sequence[Any], lr: float) -> NonFiniteError:
        """The error with the samples and the first module whose output is not finite."""
        run, number = self.run, self.run.state.step + 1
        with precision.autocast(run.precision, self.device):
            module = diagnose.first_non_finite(run.model, parts)
        # The samples of any rank may be the cause: take the first rank that found a module.
        modules = run.group.gather(module)
        where = next((each for each in modules if each), diagnose.BACKWARD)
        ids = run.sample_ids(number)
        shown = ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")
        return NonFiniteError(
            f"step {number}: {problem}, the learning rate {lr:.4g}, the samples "
            f"{shown}; it arose in {where}. The weights before it are kept; a lower "
            f"--train.learning-rate or --train.gradient-clip may help"
        )
