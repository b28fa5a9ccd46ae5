"""Training loop of a run: the events between its start and its end.

At each step boundary the loop saves, evaluates, checks whether to stop, and then takes a step. So
a run that is killed during an evaluation resumes with that evaluation.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from clearformer.runs import stop_request
from clearformer.runs.checkpoint import is_log_spaced
from clearformer.runs.evaluation import evaluate
from clearformer.runs.exit_codes import ORPHANED
from clearformer.runs.metrics import MetricsFile, evaluation_row, step_row
from clearformer.runs.saving import save
from clearformer.runs.trainer import Trainer
from clearformer.training import diagnose, optim
from clearformer.training.events import Ended, Event, Saved, Skipped, Step

if TYPE_CHECKING:
    from clearformer.runs.run import Run

DIAGNOSE_AFTER = 200  # steps; a shorter run is checked at its end


class Loop:
    """Yields the events of a run and writes them to its metrics."""

    def __init__(
        self, run: Run, metrics: MetricsFile, samples: MetricsFile, stop: Callable[[], int]
    ) -> None:
        self.run = run
        self.metrics = metrics
        self.samples = samples
        self.stop = stop
        self.trainer = Trainer(run)
        self.started = time.monotonic() - run.state.seconds
        self.last_save: float | None = None  # nothing is due before the first step
        self.losses: list[float] = []

    def events(self) -> Iterator[Event]:
        run, state, train = self.run, self.run.state, self.run.config.train
        while True:
            seconds, stopped, code = self._synchronize()
            if self.last_save is None:
                self.last_save = seconds
            elif seconds - self.last_save > train.save_seconds:
                yield self._save(seconds)
            if self._log_checkpoint_is_due():
                yield self._save(seconds)
            progress = run.budget.progress(state.step, seconds)
            done = progress >= 1 or self._out_of_patience()
            if done or math.floor(progress * train.evaluations) > state.evaluated:
                yield from self._evaluate(seconds, progress)
                done = done or self._out_of_patience()
            if done and len(self.losses) < DIAGNOSE_AFTER:
                self._diagnose()
            if done or stopped:
                yield from self._end(done, code)
                return
            event = self._step(seconds, progress)
            yield event
            if isinstance(event, Step):
                self.losses.append(event.loss)
                if len(self.losses) == DIAGNOSE_AFTER:
                    self._diagnose()

    def _seconds(self) -> float:
        """Seconds of training over all starts of the run."""
        return time.monotonic() - self.started

    def _synchronize(self) -> tuple[float, bool, int]:
        """Seconds of training, whether to stop, and the exit code; the same on all ranks.

        Clocks and signals differ between ranks, so that all use the largest values.
        """
        group = self.run.group
        group.report_step(self.run.state.step)
        requested = group.is_main and stop_request.requested(self.run.folder)
        code = self.stop() or (ORPHANED if group.orphaned else 0)
        seconds, stopped, code_of_all = group.max([self._seconds(), requested, code])
        return seconds, bool(stopped or code_of_all), int(code_of_all)

    def _save(self, seconds: float) -> Saved:
        self.last_save = seconds
        return save(self.run, self.metrics, self.samples, self._seconds())

    def _log_checkpoint_is_due(self) -> bool:
        step = self.run.state.step
        wanted = self.run.config.train.log_checkpoints and is_log_spaced(step)
        return wanted and self.run.saved_step != step

    def _evaluate(self, seconds: float, progress: float) -> Iterator[Event]:
        run, state = self.run, self.run.state
        if run.saved_step != state.step:
            yield self._save(seconds)
        if state.evaluated < run.config.train.evaluations or progress >= 1:
            event = evaluate(run, progress)
            self.metrics.append(evaluation_row(event))
            if event.sample is not None:
                self.samples.append({"step": event.step, "text": event.sample})
            yield event
        if progress < 1 and self._out_of_patience():
            run.say(f"note: stopping early: no improvement in {state.since_best} evaluations")

    def _step(self, seconds: float, progress: float) -> Step | Skipped:
        run, state, base = self.run, self.run.state, self.run.config.train.learning_rate
        factor, state.warmed = run.budget.lr_factor(state.step, seconds, state.warmed)
        optim.set_lr(state.optimizers, factor)
        result = self.trainer.step(base * factor)
        state.step += 1
        if result.skipped:
            skipped = Skipped(state.step, state.scaling.scale, state.scaling.skipped)
            self.metrics.append({"event": "skipped", **vars(skipped)})
            return skipped
        state.empty += not result.targets
        state.targets += result.targets
        if state.ema is not None:
            state.ema.update(run.model, state.step)
        event = Step(
            step=state.step,
            loss=result.loss,
            lr=base * factor,
            gradient_norm=result.gradient_norm,
            tokens=state.targets,
            seconds=self._seconds(),
            progress=progress,
        )
        self.metrics.append(step_row(event, run.task.counted))
        return event

    def _end(self, done: bool, code: int) -> Iterator[Event]:
        run, step = self.run, self.run.state.step
        if run.saved_step != step or done:
            yield self._save(self._seconds())
        run.group.on_main(self._close)
        ended = Ended(step, "finished") if done else Ended(step, "stopped", code)
        self.metrics.append({"event": "end", **vars(ended)})
        yield ended

    def _close(self) -> None:
        """Check that the folder still exists, and clear a stop request."""
        self.metrics.require_in_place()
        stop_request.clear(self.run.folder)

    def _out_of_patience(self) -> bool:
        patience = self.run.config.train.patience
        return patience is not None and self.run.state.since_best >= patience

    def _diagnose(self) -> None:
        if problem := diagnose.not_learning(self.losses, self.run.task.chance()):
            self.run.say(f"note: {problem}")
