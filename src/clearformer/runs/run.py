"""A run: steps until the budget is spent, with evaluations, checkpoints and a clean end.

`Run` is an iterator of events. The command line draws them, tests assert on them; there are no
callbacks. Everything that matters is in the run's folder: `config.json`, `tokenizer.json`,
`metrics.jsonl`, `samples.jsonl`, `checkpoints/step-N/`.

The order at a step boundary is: save, evaluate, look whether to stop, step. So a run that is
killed while it evaluates goes on with that very evaluation, and nothing is lost to it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from clearformer import safe_files
from clearformer.build import build, outline
from clearformer.config import RunConfig, run_from_json, to_json
from clearformer.core.heads import set_smoothing
from clearformer.data import Places
from clearformer.distributed.parallel import spread
from clearformer.distributed.process_group import ALONE, Alone
from clearformer.runs import (
    checkpoint,
    checkpoint_choice,
    contamination,
    finetune,
    memory_check,
    state,
)
from clearformer.runs import stop_request as stop_file
from clearformer.runs.exit_codes import DESERTED, MISTAKE, exit_code
from clearformer.runs.faults import Faults
from clearformer.runs.fingerprint import OWN, Builder, of_own_builder, require_same
from clearformer.runs.fingerprint import Model as Model
from clearformer.runs.lock import Lock, require_writable
from clearformer.runs.metrics import (
    VERSION,
    Records,
    Unwritten,
    evaluation_row,
    start_row,
    step_row,
)
from clearformer.runs.resume import continued
from clearformer.tasks import pattern_checks, registry
from clearformer.tasks.measured import Measured
from clearformer.tasks.task import LoadedTask
from clearformer.text import Tokenizer
from clearformer.text import from_json as tokenizer_from_json
from clearformer.text import sha256 as tokenizer_identity
from clearformer.train import (
    diagnose,
    loss_scaling,
    microbatch,
    optim,
    precision,
    recompute,
    rng,
    schedule,
    step,
)
from clearformer.train.device import device_of, set_threads
from clearformer.train.ema import Average
from clearformer.train.events import Ended, Evaluation, Event, Saved, Skipped, Step
from clearformer.train.torch_compile import compiled, pays


class Run:
    """Training of one config in one folder, started or continued."""

    def __init__(
        self,
        config: RunConfig | None,
        folder: Path,
        places: Places,
        *,
        resume: bool = False,
        say: Callable[[str], None] = print,
        sample: Callable[[Run, Model], str | None] | None = None,
        faults: Faults = Faults(),
        allow_changed_data: bool = False,
        make: Builder = build,
        ranks: Alone = ALONE,
    ) -> None:
        self.folder = folder
        self.say = say
        self.sample = sample if ranks.leads else None
        self.faults = faults
        self.allow_changed_data = allow_changed_data
        self.ranks = ranks
        require_writable(folder)
        self.lock: Lock | None = None
        ranks.lead(self._lock)  # before anything is read: who writes there may change it
        try:
            self._open(config, places, resume, make)
        except BaseException:
            self._discard()
            raise

    def _lock(self) -> None:
        self.lock = Lock(self.folder)
        # One from before this run was not meant for it. Workers that are started again continue
        # the run that was asked to stop.
        if not self.ranks.restarts and stop_file.clear(self.folder):
            self.say(
                "note: a file `stop` from before this start was removed: create it again to end "
                "this run"
            )

    def _discard(self) -> None:
        if self.lock is not None:
            self.lock.discard()

    def _unlock(self) -> None:
        if self.lock is not None:
            self.lock.release()

    def _open(
        self,
        config: RunConfig | None,
        places: Places,
        resume: bool,
        make: Builder,
    ) -> None:
        folder, say, ranks = self.folder, self.say, self.ranks
        found = self._newest()
        if found is not None and not resume:
            raise ValueError(
                f"{folder} already holds a run at step {found.step}: add --resume to go on with "
                f"it, or choose another --out"
            )
        if found is not None:
            saved = run_from_json(found.json("config.json"))
            config = saved if config is None else continued(saved, config, say)
        if config is None:
            raise ValueError(f"{folder} holds no run to resume: give a model and data")
        tokenizer, opened = None, None
        if found is not None:
            # Learning it again would take long, and what it was learned from may be far away.
            tokenizer = tokenizer_from_json(found.json("tokenizer.json"))
        elif config.origin is not None:
            opened = finetune.open_origin(config.origin, config, make)
            tokenizer = opened.tokenizer
        elif config.train.tables is not None:
            raise ValueError("train.tables needs tables that were learned: add --from RUN")
        # Unless told, as many as torch takes: one for each core, or OMP_NUM_THREADS.
        wanted = config.train.threads or ranks.threads
        threads = set_threads(wanted)
        if threads < wanted:
            say(
                f"note: {wanted} threads are more than this machine has use for: {threads} are used"
            )
        self.parts = microbatch.parts_of_a_rank(
            config.train.batch, config.train.accumulate, ranks.world
        )
        memory_check.require_room(config, config.train.batch // ranks.world // self.parts)
        self.task = self._load(config, places, tokenizer)
        self.config = self.task.config
        for cost in pattern_checks.costs(self.config.model):
            say(f"note: {cost}")
        self.data: dict[str, Any] = {
            "data": self.task.identity,
            "tokenizer": tokenizer_identity(self.task.tokenizer),
        }
        rng.seed(self.config.train.seed)
        self.make = make
        model = make(self.config.model, self.config.train.seed)
        # Before anything is done to it: what a builder of one's own gave, if it is another model.
        own = of_own_builder(model, self.config.model, make)
        self.data |= {} if own is None else {OWN: own}
        self.data |= contamination.facts(
            self.task,
            opened.found if opened is not None else None,
            {} if found is None else found.manifest,
            config.origin.folder if config.origin is not None else None,
        )
        if found is not None:
            require_same(model, self.config.model, found)
        if opened is not None:
            finetune.take_over(model, self.config.model, opened)
            if self.config.train.tables is not None:
                finetune.scale_tables(model, self.config.train.tables)
        if self.config.train.freeze is not None:
            finetune.freeze_body(model)
        set_smoothing(model, self.config.train.smoothing)
        recompute.apply(model, self.config.train.recompute)
        device = ranks.device(device_of(self.config.train.device))
        self.model = model.to(device)
        self.spread = spread(ranks, self.config.train.distribute)
        self.spread.apply(self.model)
        self.precision = precision.resolve(self.config.train.precision, device)
        decay = self.config.train.ema
        self.state = state.State(
            self.model,
            optim.optimizers(self.model, self.config.train),
            Average(self.model, decay) if decay else None,
            self.task.memory(self.parts),
            loss_scaling.suited(self.precision, device),
        )
        self.saved_step = -1
        self.protocol = ""  # of the evaluations, once there was one
        self.resumed = found is not None
        if ranks.rank:
            rng.begin(self.config.train.seed, 0, ranks.rank)
        if found is not None:
            self._restore(found)
        ranks.lead(lambda: self._tidy(found))

    def _tidy(self, found: checkpoint.Checkpoint | None) -> None:
        if found is None:
            checkpoint.require_space(self.folder, 2 * self.state.bytes() + checkpoint.MARGIN)
        checkpoint.tidy(self.checkpoints, found, self.say)

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def _newest(self) -> checkpoint.Checkpoint | None:
        """The newest checkpoint that holds: the leader looks, and all take the same."""

        def look() -> Any:
            found = checkpoint.newest(self.checkpoints, self.say)
            return found and (found.folder.name, found.step, dict(found.manifest))

        told = self.ranks.lead(look)
        if told is None:
            return None
        name, step, manifest = told
        folder = self.checkpoints / name
        if not folder.is_dir():
            raise ValueError(
                f"rank {self.ranks.rank} does not see {folder}: the run's folder must lie where "
                f"every machine sees it"
            )
        return checkpoint.Checkpoint(folder, step, manifest)

    def _load(self, config: RunConfig, places: Places, tokenizer: Tokenizer | None) -> LoadedTask:
        """The task. The leader prepares the data and learns the tokenizer, the others use both."""

        def load(told: Any) -> LoadedTask:
            known = tokenizer if told is None else tokenizer_from_json(told)
            return registry.load(config, places, known)

        task = self.ranks.in_turn(load, lambda task: task.tokenizer.to_json())
        # A rank may read another copy of a file, or the same one after it was changed.
        identities = self.ranks.gather(task.identity)
        other = next((i for i, each in enumerate(identities) if each != identities[0]), None)
        if other is not None:
            raise ValueError(
                f"rank {other} reads other data than rank 0: every rank must see the same files, "
                f"and nothing may change them while a run starts"
            )
        return task

    def _restore(self, found: checkpoint.Checkpoint) -> None:
        for what in ("data", "tokenizer"):
            identity = self.data[what]
            if found.manifest.get(what) == identity:
                continue
            if what != "data" or not self.allow_changed_data:
                raise ValueError(
                    f"the {what} is not the one that {self.folder} was trained with: "
                    f"put the old one back, or start a new run in another folder"
                    + (", or go on with --allow-changed-data" if what == "data" else "")
                )
            self.say(
                f"note: the data is not what it was before step {found.step}: the run goes on "
                f"with other samples"
            )
        state.restore(found, self.state, self.config.train.seed, self.spread)
        self.saved_step = found.step
        for name, now in self._about().items():
            # A checkpoint from before a fact was kept says nothing about it.
            if found.manifest.get(name, now) != now:
                self.say(
                    f"note: {name} was {found.manifest.get(name)} and is {now}: "
                    f"the run goes on, but not bit for bit"
                )

    def events(self, stop: Callable[[], int] = lambda: 0) -> Iterator[Event]:
        """Train until the budget is spent, or `stop` gives an exit code at a step boundary."""
        try:
            self.ranks.lead(self._write_identity)
            with (
                self._records("metrics.jsonl") as metrics,
                self._records("samples.jsonl") as samples,
            ):
                yield from self._recorded(metrics, samples, stop)
        finally:
            self._unlock()

    def _recorded(
        self, metrics: Records, samples: Records, stop: Callable[[], int]
    ) -> Iterator[Event]:
        """All events, and in the records where they began and why they ended."""
        try:
            if not metrics.begun:
                metrics.append(start_row(self.task.counted, self.task.metric))
            for each in (metrics, samples):
                # A run that was killed before its first checkpoint goes on from step 0.
                if self.resumed or each.begun:
                    each.append({"event": "resume", "step": self.state.step, "version": VERSION})
            yield from self._events(metrics, samples, stop)
        except Exception as problem:
            lost = self.ranks.explain(problem)
            reason = "error" if lost is None else "lost a rank"
            end = {"reason": reason, "exit": exit_code(problem) if lost is None else MISTAKE}
            with suppress(OSError):  # the disk may be what went wrong
                metrics.append({"event": "end", "step": self.state.step, **end})
            if lost is not None:
                raise ValueError(lost) from None
            raise

    def sample_ids(self, number: int) -> list[int]:
        """Which samples step `number` (from 1) learns from: rows of a table, places in a text."""
        ids: list[int] = self.task.batches.sample_ids(number - 1).tolist()
        return ids

    def _events(
        self, metrics: Records, samples: Records, stop: Callable[[], int]
    ) -> Iterator[Event]:
        train, now = self.config.train, self.state
        began = time.monotonic() - now.seconds
        last_save: float | None = None  # nothing is due before the first step
        loss = self._loss()
        losses: list[float] = []

        def save() -> Saved:
            return self._save(metrics, samples, time.monotonic() - began)

        while True:
            self.ranks.reached(now.step)
            # Clocks and signals differ between ranks, so all go by the largest.
            seconds, wanted, signal = self.ranks.largest(
                [time.monotonic() - began, self._asked(), stop() or self._deserted()]
            )
            code, wanted = int(signal), wanted or signal
            if last_save is None:
                last_save = seconds
            elif seconds - last_save > train.save_seconds:
                yield save()
                last_save = seconds
            progress = self._progress(seconds)
            done = progress >= 1 or self._lost_patience()
            if done or math.floor(progress * train.evaluations) > now.evaluated:
                if self.saved_step != now.step:
                    yield save()
                    last_save = seconds
                if now.evaluated < train.evaluations or progress >= 1:
                    yield self._evaluate(metrics, samples, progress)
                if progress < 1 and self._lost_patience():
                    done = True
                    self.say(f"note: {now.since_best} evaluations brought nothing better: enough")
            if done and len(losses) < 200:
                self._look_for_trouble(losses)
            if done or wanted:
                if self.saved_step != now.step or done:
                    yield save()
                self.ranks.lead(lambda: self._close(metrics))
                ended = Ended(now.step, "finished") if done else Ended(now.step, "stopped", code)
                metrics.append({"event": "end", **vars(ended)})
                yield ended
                return
            factor = self._rate_factor(seconds, progress)
            optim.set_rate(now.rules, factor)
            outcome = self._step(self.faults.spoil(now.step + 1, loss), train.lr * factor)
            now.step += 1
            if outcome.skipped:
                left_out = Skipped(now.step, now.scaling.scale, now.scaling.skipped)
                metrics.append({"event": "skipped", **vars(left_out)})
                yield left_out
                continue
            now.empty += not outcome.targets
            now.targets += outcome.targets
            if now.average is not None:
                now.average.update(self.model, now.step)
            event = Step(
                now.step,
                outcome.loss,
                train.lr * factor,
                outcome.gradient_norm,
                now.targets,
                time.monotonic() - began,
                progress,
            )
            metrics.append(step_row(event, self.task.counted))
            yield event
            losses.append(outcome.loss)
            if len(losses) == 200:
                self._look_for_trouble(losses)

    def _save(self, metrics: Records, samples: Records, seconds: float) -> Saved:
        """A checkpoint of this step; those that need not be kept any longer go."""
        now, ranks = self.state, self.ranks
        self._require_finite()
        ranks.lead(metrics.require_there)  # a folder that was removed is not made anew
        now.seconds = seconds
        for each in (metrics, samples):
            each.sync()
        reached = self.faults.reached(now.step)
        best = now.best["step"] if now.best else None
        try:
            written = state.save(
                self.checkpoints,
                now,
                self.config,
                self.task.tokenizer.to_json(),
                {**self.data, **self._about()},
                reached,
                self.spread,
            )
            self.saved_step = now.step
            keep = self.config.train.keep
            ranks.lead(lambda: checkpoint.prune(self.checkpoints, keep, best, reached))
        except (OSError, ValueError):
            metrics.require_there()  # if the folder is gone, that is the reason
            raise
        metrics.append({"event": "checkpoint", "step": now.step})
        return Saved(now.step, written.folder)

    def _asked(self) -> bool:
        """Whether somebody wants the run to end, without a signal."""
        return self.ranks.leads and stop_file.requested(self.folder)

    def _close(self, metrics: Records) -> None:
        """A run whose folder is gone has not finished, whatever it computed."""
        metrics.require_there()
        stop_file.clear(self.folder)

    def _deserted(self) -> int:
        """The code to leave with if whoever started the ranks is gone: nobody asked for an end."""
        return DESERTED if self.ranks.deserted else 0

    def _records(self, name: str) -> Records:
        return Records(self.folder / name) if self.ranks.leads else Unwritten()

    def _loss(self) -> step.Loss:
        how = partial(compiled, say=self.say) if self._compiles() else None
        loss = self.spread.loss(self.model, how)
        return precision.under(loss, self.precision, next(self.model.parameters()).device)

    def _compiles(self) -> bool:
        """Whether to compile: decided by the config alone, so that a resumed run decides alike."""
        train = self.config.train
        if train.compile != "auto":
            return train.compile == "on"
        # Rows come in many lengths, and every new one would be compiled again.
        alike = self.task.same_shape and self.spread.compiles
        tokens = 0 if train.minutes else self.total_steps * train.batch * self.config.model.length
        return alike and pays(self.model, train.minutes, tokens)

    def _step(self, loss: step.Loss, rate: float) -> step.Outcome:
        train = self.config.train
        self.model.train()
        batch = self.task.batch(self.state.step)
        device, ranks = next(self.model.parameters()).device, self.ranks
        parts = microbatch.cut(batch, self.parts, device, ranks.rank, ranks.world)
        counts = microbatch.counts(batch)
        memory = self.state.memory
        if memory is not None:
            if self.task.fresh(self.state.step):
                memory.forget()
            loss = memory.using(loss, parts)
        try:
            outcome = step.take(
                loss,
                self.model.parameters(),
                self.state.rules,
                parts,
                counts,
                train.clip,
                self.state.scaling,
                self.spread,
            )
            if memory is not None:
                # What overflowed must not be remembered.
                memory.advance() if math.isfinite(outcome.loss) else memory.forget()
            return outcome
        except step.NotFiniteError as problem:
            with precision.context(self.precision, next(self.model.parameters()).device):
                found = diagnose.first_not_finite(self.model, parts)
            # One rank's rows are enough to spoil everybody's step: the first that knows tells.
            places = ranks.gather(found)
            where = next((each for each in places if each), diagnose.BACKWARD)
            ids = self.sample_ids(self.state.step + 1)
            shown = ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")
            raise step.NotFiniteError(
                f"step {self.state.step + 1}: {problem}, the learning rate {rate:.4g}, the samples "
                f"{shown}; it arose in {where}. The weights before it are kept; a lower --train.lr "
                f"or --train.clip may help"
            ) from None

    def _require_finite(self) -> None:
        """A gradient may be finite and the update by it not: such weights are never saved."""
        own = [self.spread.own(p.detach()) for p in self.model.parameters()]
        # A sum is quick, and not finite if any of its terms is not.
        spoiled = [not p.sum().isfinite() and not p.isfinite().all() for p in own]
        if not self.ranks.largest([float(any(spoiled))])[0]:
            return
        kept = f"those of step {self.saved_step} are kept" if self.saved_step >= 0 else "none kept"
        raise step.NotFiniteError(
            f"step {self.state.step}: the update made weights that are no numbers ({kept}): the "
            f"learning rate, {self.config.train.lr:.4g}, is too large; lower --train.lr"
        )

    def _evaluate(self, metrics: Records, samples: Records, progress: float) -> Evaluation:
        now = self.state
        device = next(self.model.parameters()).device
        with now.average.lent_to(self.model) if now.average else nullcontext():
            model = self.spread.gathered(self.model, self._without_weights)
            with precision.context(self.precision, device):
                measured = self.task.evaluate(model)
                figures = self.ranks.share(measured.figures)
            sample = self._sample(model)
        value = figures[self.task.metric]
        sign = 1 if self.task.larger_is_better else -1
        better = now.best is None or sign * value > sign * now.best["value"]
        best = better and math.isfinite(value)  # nothing would ever be better than no number
        now.since_best = 0 if best else now.since_best + 1
        if best:
            now.best = {"step": now.step, "value": value}
            now.scores = torch.tensor(measured.scores, dtype=torch.float64)
        self._compare(value, measured, progress >= 1)
        # By progress and not by counting: an evaluation that a long step jumped over is gone.
        now.evaluated = max(
            now.evaluated + 1, math.floor(min(progress, 1.0) * self.config.train.evaluations)
        )
        told = Evaluation(now.step, figures, best, sample, measured.error)
        metrics.append(evaluation_row(told))
        if sample is not None:
            samples.append({"step": now.step, "text": sample})
        return told

    def _compare(self, value: float, measured: Measured, finished: bool) -> None:
        """Write down how this evaluation compares with the best: `choice` goes by it."""
        now = self.state
        before = None if now.scores is None else now.scores.tolist()
        found = checkpoint_choice.compared(before, measured.scores, self.task.larger_is_better)
        shown = value if math.isfinite(value) else None
        now.last = {"step": now.step, "value": shown, "finished": finished, **(found or {})}
        self.protocol = measured.protocol

    @property
    def chosen(self) -> checkpoint_choice.Choice:
        """The checkpoint that every verb will use."""
        return checkpoint_choice.choose(
            self.state.numbers(), self.state.step, self.config.train.schedule
        )

    def _without_weights(self) -> Model:
        config = self.config
        if self.make is build:
            return outline(config.model)
        model = self.make(config.model, config.train.seed)
        model.load_state_dict(state.buffers(self.model), strict=False)
        return model

    def _sample(self, model: Model) -> str | None:
        """What the model says. It is looked at and nothing more, so no run ends for it."""
        if self.sample is None:
            return None
        try:
            return self.sample(self, model)
        except Exception as problem:
            reason = " ".join(str(problem).split()) or type(problem).__name__
            self.say(f"note: step {self.state.step} has no sample text: {reason}")
            return None

    def _rate_factor(self, seconds: float, progress: float) -> float:
        """What the base learning rate is multiplied by in the next step."""
        train, now = self.config.train, self.state
        if train.anneal == "from_start":
            return schedule.from_start(train.schedule, now.step, progress)
        total = None if train.minutes is not None else self.total_steps
        if now.warmed is not None:
            # Where it ended does not change with a budget that is changed later.
            steps, ended = now.warmed["step"], now.warmed["seconds"]
            share = self._progress(ended) if total is None else steps / total
            warmup = schedule.Warmup(1.0, steps, share)
        elif total is None:
            warmup = schedule.by_clock(train.schedule, now.step, progress)
        else:
            warmup = schedule.by_steps(train.schedule, now.step, total)
        if now.warmed is None and warmup.factor >= 1:
            now.warmed = {"step": warmup.steps, "seconds": seconds if warmup.steps else 0.0}
        return schedule.factor(train.schedule, now.step, progress, warmup)

    def _progress(self, seconds: float) -> float:
        train = self.config.train
        if train.minutes is not None:
            return seconds / (60 * train.minutes)
        return self.state.step / self.total_steps

    @property
    def total_steps(self) -> int:
        train = self.config.train
        assert train.minutes is None
        if train.steps is not None:
            return train.steps
        assert train.epochs is not None
        return max(1, round(train.epochs * self.task.steps_per_epoch))

    def _look_for_trouble(self, losses: list[float]) -> None:
        if trouble := diagnose.stuck(losses, self.task.chance()):
            self.say(f"note: {trouble}")

    def fitting(self) -> int | None:
        """The fewest micro-batches with which a step has room, tried; None: not one sequence."""
        train, batch = self.config.train, self.task.batch(self.state.step)
        return microbatch.fewest_that_fit(self.model, batch, train.batch, train.accumulate)

    def _lost_patience(self) -> bool:
        patience = self.config.train.patience
        return patience is not None and self.state.since_best >= patience

    def _about(self) -> dict[str, Any]:
        """What the last bits of a result depend on, besides the config."""
        return {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "cpu": torch.backends.cpu.get_cpu_capability(),
            "device": str(next(self.model.parameters()).device),
            "precision": self.precision,
            "compiled": self._compiles(),
            "world": self.ranks.world,
        }

    def _write_identity(self) -> None:
        """What the folder needs besides checkpoints, to be opened by any verb."""
        if self.lock is not None:
            self.lock.require_held()  # reading the data may have taken long
        documents = {
            "config.json": to_json(self.config),
            "tokenizer.json": self.task.tokenizer.to_json(),
        }
        for name, document in documents.items():
            text = json.dumps(document, indent=1, ensure_ascii=False)
            safe_files.replace(self.folder / name, text.encode())
