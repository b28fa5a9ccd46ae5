"""Training run in a folder: steps until the budget is spent, evaluations and checkpoints.

`Run` opens a folder, new or to resume, and is an iterator of events; there are no callbacks.
The folder holds everything: `config.json`, `tokenizer.json`, `metrics.jsonl`, `samples.jsonl` and
`checkpoints/step-N/`. Parts of a run are in other files: `opening`, `loop`, `trainer`,
`evaluation` and `saving`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from clearformer import safe_files
from clearformer.builder import build
from clearformer.config import RunConfig, to_json
from clearformer.data import DataFolders
from clearformer.distributed.parallel import parallelism
from clearformer.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from clearformer.runs import (
    checkpoint,
    checkpoint_choice,
    memory_check,
    opening,
    state,
    stop_request,
)
from clearformer.runs.exit_codes import MISTAKE, exit_code
from clearformer.runs.faults import Faults
from clearformer.runs.fingerprint import Builder
from clearformer.runs.fingerprint import Model as Model
from clearformer.runs.lock import Lock, require_writable
from clearformer.runs.loop import Loop
from clearformer.runs.metrics import VERSION, MetricsFile, NoFile, start_row
from clearformer.tasks import pattern_checks
from clearformer.training import loss_scaling, microbatch, optim, precision, rng
from clearformer.training.budget import Budget
from clearformer.training.device import device_of
from clearformer.training.ema import EMA
from clearformer.training.events import Event


class Run:
    """Training of one config in one folder, new or resumed."""

    lock: Lock | None = None  # held by the main process
    baseline: str | None = None  # of a simple method on the same data, once the run has ended

    def __init__(
        self,
        config: RunConfig | None,
        folder: Path,
        folders: DataFolders,
        *,
        resume: bool = False,
        say: Callable[[str], None] = print,
        sample: Callable[[Run, Model], str | None] | None = None,
        faults: Faults = Faults(),
        allow_changed_data: bool = False,
        make: Builder = build,
        group: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        self.folder = folder
        self.checkpoints = folder / "checkpoints"
        self.say = say
        self.sample = sample if group.is_main else None
        self.faults = faults
        self.make = make
        self.group = group
        require_writable(folder)
        group.on_main(self._acquire_lock)  # before anything in the folder is read
        try:
            self._open(config, folders, resume, allow_changed_data)
        except BaseException:
            if self.lock is not None:
                self.lock.discard()
            raise

    def _acquire_lock(self) -> None:
        self.lock = Lock(self.folder)
        # An earlier request was for an earlier start. Workers that torchrun restarts continue the
        # run that was asked to stop.
        if not self.group.restarts and stop_request.clear(self.folder):
            self.say("note: an old `stop` file was removed: create it again to stop this run")

    def _open(
        self, config: RunConfig | None, folders: DataFolders, resume: bool, allow_changed_data: bool
    ) -> None:
        group, say = self.group, self.say
        saved = opening.newest_checkpoint(self.checkpoints, group, say)
        config = opening.resolve_config(config, saved, self.folder, resume, say)
        tokenizer, origin = opening.tokenizer_and_origin(config, saved, self.make)
        opening.set_threads(config.train.threads or group.threads, say)
        self.micro_batches = microbatch.micro_batches_per_rank(
            config.train.batch_size, config.train.accumulation_steps, group.world_size
        )
        memory_check.require_memory(
            config, config.train.batch_size // group.world_size // self.micro_batches
        )
        self.task = opening.load_task(config, folders, tokenizer, group)
        self.config = self.task.config
        for cost in pattern_checks.memory_notes(self.config.model):
            say(f"note: {cost}")
        train = self.config.train
        rng.seed(train.seed)
        model = self.make(self.config.model, train.seed)
        self.facts = opening.identity(self.task, model, self.make, saved, origin)
        self.adapter, weights = opening.prepare_model(model, self.config, saved, origin)
        del origin  # its weights were copied
        self.task.prepare(model)
        device = group.device(device_of(train.device))
        self.model = model.to(device)
        self.parallel = parallelism(group, train.parallel)
        self.parallel.apply(self.model)
        self.precision = precision.resolve(train.precision, device)
        self.budget = Budget(train, self.task.steps_per_epoch)
        self.state = state.State(
            self.model,
            optim.make_optimizers(self.model, train),
            EMA(self.model, train.ema_decay) if train.ema_decay else None,
            self.task.memory(self.micro_batches),
            weights,
            loss_scaling.loss_scaling_for(self.precision, device),
        )
        self.saved_step = -1 if saved is None else saved.step
        self.protocol = ""  # of the last evaluation
        self.resumed = saved is not None
        if group.rank:
            rng.seed_rank(train.seed, 0, group.rank)
        if saved is not None:
            opening.require_same_data(saved, self.facts, self.folder, allow_changed_data, say)
            state.restore(saved, self.state, train.seed, self.parallel)
            opening.report_changes(saved, opening.environment(self), say)
        group.on_main(lambda: self._clean_up(saved))

    def _clean_up(self, saved: checkpoint.Checkpoint | None) -> None:
        if saved is None:
            checkpoint.require_space(self.folder, 2 * self.state.bytes() + checkpoint.MARGIN)
        checkpoint.clean_up(self.checkpoints, saved, self.say)

    def events(self, stop: Callable[[], int] = lambda: 0) -> Iterator[Event]:
        """Train until the budget is spent, or until `stop` returns an exit code."""
        try:
            self.group.on_main(self._write_config)
            with self._file("metrics.jsonl") as metrics, self._file("samples.jsonl") as samples:
                yield from self._recorded(metrics, samples, stop)
        finally:
            if self.lock is not None:
                self.lock.release()

    def _recorded(
        self, metrics: MetricsFile, samples: MetricsFile, stop: Callable[[], int]
    ) -> Iterator[Event]:
        """The events of the loop; start, resume and errors are written to the metrics."""
        try:
            if not metrics.has_rows:
                metrics.append(start_row(self.task.counted, self.task.metric))
            for file in (metrics, samples):
                # A run that was killed before its first checkpoint continues at step 0.
                if self.resumed or file.has_rows:
                    file.append({"event": "resume", "step": self.state.step, "version": VERSION})
            yield from Loop(self, metrics, samples, stop).events()
        except Exception as problem:
            lost = self.group.explain(problem)
            reason = "error" if lost is None else "lost a rank"
            end = {"reason": reason, "exit": exit_code(problem) if lost is None else MISTAKE}
            with suppress(OSError):  # a full disk may be the problem
                metrics.append({"event": "end", "step": self.state.step, **end})
            if lost is not None:
                raise ValueError(lost) from None
            raise

    def _file(self, name: str) -> MetricsFile:
        return MetricsFile(self.folder / name) if self.group.is_main else NoFile()

    def _write_config(self) -> None:
        """Write what a command needs besides checkpoints to open the folder."""
        if self.lock is not None:
            self.lock.require_held()  # loading the data may have taken long
        documents = {
            "config.json": to_json(self.config),
            "tokenizer.json": self.task.tokenizer.to_json(),
        }
        for name, document in documents.items():
            text = json.dumps(document, indent=1, ensure_ascii=False)
            safe_files.replace(self.folder / name, text.encode())

    def sample_ids(self, step: int) -> list[int]:
        """The samples that `step` (from 1) trains on: rows of a table, offsets in a text."""
        ids: list[int] = self.task.batches.sample_ids(step - 1).tolist()
        return ids

    @property
    def selected(self) -> checkpoint_choice.Choice:
        """The checkpoint that every command will use."""
        return checkpoint_choice.choose(
            self.state.numbers(), self.state.step, self.config.train.schedule
        )

    @property
    def total_steps(self) -> int:
        return self.budget.total_steps

    def fewest_micro_batches(self) -> int | None:
        """Find by trial the fewest micro-batches that fit; None: not even one sequence does."""
        train, batch = self.config.train, self.task.batch(self.state.step)
        return microbatch.fewest_fitting(
            self.model, batch, train.batch_size, train.accumulation_steps
        )
