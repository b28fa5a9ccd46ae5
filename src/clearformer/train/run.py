"""A run: steps until the budget is spent, with evaluations, checkpoints and a clean end.

`Run` is an iterator of events. The command line draws them, tests assert on them; there are no
callbacks. Everything that matters is in the run's folder: `config.json`, `tokenizer.json`,
`metrics.jsonl`, `samples.jsonl`, `checkpoints/step-N/`.

The order at a step boundary is: save, evaluate, look whether to stop, step. So a run that is
killed while it evaluates goes on with that very evaluation, and nothing is lost to it.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from clearformer.build import build, outline
from clearformer.config import AnyModelConfig, RunConfig, run_from_json, to_json
from clearformer.core.heads import Head
from clearformer.core.model import Seq2Seq, Transformer
from clearformer.data import Places
from clearformer.text import Tokenizer
from clearformer.text import from_json as tokenizer_from_json
from clearformer.text import sha256 as tokenizer_identity
from clearformer.train import (
    checkpoint,
    diagnose,
    draws,
    micro,
    optim,
    origin,
    precision,
    schedule,
    state,
    step,
    tasks,
)
from clearformer.train.average import Average
from clearformer.train.records import Records, Unwritten
from clearformer.train.spread import spread
from clearformer.train.together import ALONE, Alone

# Settings that a continued run may change; all others would make it another run.
CHANGEABLE = {"steps", "epochs", "minutes", "evaluations", "patience", "save_seconds", "keep"}
CHANGEABLE |= {"distribute", "wait_seconds"}
COMPILE_FROM_MINUTES = 15  # compiling takes about a minute and gains some percent
# What a device does when nothing is known of it but its kind: two cores, a middling GPU.
OPERATIONS_A_MINUTE = {"cpu": 60 * 2e11, "cuda": 60 * 3e13, "mps": 60 * 3e12}


@dataclass(frozen=True)
class Step:
    """One optimizer step."""

    step: int
    loss: float
    lr: float
    gradient_norm: float
    tokens: int  # targets so far in this start
    seconds: float  # of training, over all starts
    progress: float


@dataclass(frozen=True)
class Evaluation:
    """The figures of a step on the validation data; best = better than all before."""

    step: int
    figures: dict[str, float]
    best: bool
    sample: str | None = None  # what the model says, if it was asked to


@dataclass(frozen=True)
class Saved:
    """A checkpoint is on disk."""

    step: int
    folder: Path


@dataclass(frozen=True)
class Ended:
    """The last event: why it ended."""

    step: int
    reason: str  # finished, stopped


Event = Step | Evaluation | Saved | Ended
Model = Transformer | Seq2Seq


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
        reached: checkpoint.Reached = checkpoint.nothing_happens,
        make: Callable[[AnyModelConfig, int], Model] = build,
        ranks: Alone = ALONE,
    ) -> None:
        self.folder = folder
        self.say = say
        self.sample = sample if ranks.leads else None
        self.reached = reached
        self.ranks = ranks
        require_writable(folder)
        found = self._newest()
        if found is not None and not resume:
            raise ValueError(
                f"{folder} already holds a run at step {found.step}: add --resume to go on with "
                f"it, or choose another --out"
            )
        if found is not None:
            saved = run_from_json(found.json("config.json"))
            config = saved if config is None else continued(saved, config)
        if config is None:
            raise ValueError(f"{folder} holds no run to resume: give a model and data")
        tokenizer, opened = None, None
        if found is not None:
            # Learning it again would take long, and what it was learned from may be far away.
            tokenizer = tokenizer_from_json(found.json("tokenizer.json"))
        elif config.origin is not None:
            opened = origin.open_origin(config.origin, config)
            tokenizer = opened.tokenizer
        torch.set_num_threads(config.train.threads or ranks.cores)
        self.parts = micro.parts_of_a_rank(config.train.batch, config.train.accumulate, ranks.world)
        self.task = self._load(config, places, tokenizer)
        self.config = self.task.config
        self.data = {
            "data": self.task.identity,
            "tokenizer": tokenizer_identity(self.task.tokenizer),
        }
        torch.manual_seed(self.config.train.seed)
        model = make(self.config.model, self.config.train.seed)
        if opened is not None:
            origin.take_over(model, self.config.model, opened)
        if self.config.train.freeze is not None:
            origin.freeze_body(model)
        for head in model.modules():
            if isinstance(head, Head):
                head.smoothing = self.config.train.smoothing
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
            self.task.memory(self.parts) if isinstance(self.task, tasks.Segments) else None,
        )
        self.saved_step = -1
        self.resumed = found is not None
        if ranks.rank:
            draws.begin(self.config.train.seed, 0, ranks.rank)
        if found is not None:
            self._restore(found)

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

    def _load(self, config: RunConfig, places: Places, tokenizer: Tokenizer | None) -> tasks.Task:
        """The task. The leader prepares the data and learns the tokenizer, the others use both."""

        def load(told: Any) -> tasks.Task:
            known = tokenizer if told is None else tokenizer_from_json(told)
            return tasks.load(config, places, known)

        return self.ranks.in_turn(load, lambda task: task.tokenizer.to_json())

    def _restore(self, found: checkpoint.Checkpoint) -> None:
        for what, identity in self.data.items():
            if found.manifest.get(what) != identity:
                raise ValueError(
                    f"the {what} is not the one that {self.folder} was trained with: "
                    f"put the old one back, or start a new run in another folder"
                )
        state.restore(found, self.state, self.config.train.seed, self.spread)
        self.saved_step = found.step
        for name, now in {**about_machine(), **self._about_run()}.items():
            # A checkpoint from before a fact was kept says nothing about it.
            if found.manifest.get(name, now) != now:
                self.say(
                    f"note: {name} was {found.manifest.get(name)} and is {now}: "
                    f"the run goes on, but not bit for bit"
                )

    def _about_run(self) -> dict[str, Any]:
        return {"precision": self.precision, "world": self.ranks.world}

    def events(self, stop: Callable[[], bool] = lambda: False) -> Iterator[Event]:
        """Train until the budget is spent, or until `stop` says so at a step boundary."""
        with self.ranks.leading(locked(self.folder)):
            self.ranks.lead(self._write_identity)
            path = self.folder / "metrics.jsonl"
            metrics = Records(path) if self.ranks.leads else Unwritten()
            if self.resumed:
                # Not before the lock: another process may be writing what looks left over.
                self.ranks.lead(lambda: checkpoint.tidy(self.checkpoints))
                metrics.append({"event": "resume", "step": self.state.step})
            try:
                yield from self._events(metrics, stop)
            except step.NotFiniteError:
                metrics.append(
                    {"event": "end", "step": self.state.step, "reason": "error", "exit": 3}
                )
                raise
            finally:
                metrics.close()

    def _events(self, metrics: Records, stop: Callable[[], bool]) -> Iterator[Event]:
        train, now = self.config.train, self.state
        began = time.monotonic() - now.seconds
        last_save: float | None = None  # nothing is due before the first step
        loss = self._loss()
        tokens = 0
        losses: list[float] = []

        def save() -> Saved:
            now.seconds = time.monotonic() - began
            metrics.sync()
            written = state.save(
                self.checkpoints,
                now,
                self.config,
                self.task.tokenizer.to_json(),
                {**self.data, **self._about_run()},
                self.reached,
                self.spread,
            )
            self.saved_step = now.step
            best = now.best["step"] if now.best else None
            self.ranks.lead(
                lambda: checkpoint.prune(self.checkpoints, train.keep, best, self.reached)
            )
            return Saved(now.step, written.folder)

        while True:
            self.ranks.reached(now.step)
            # Clocks and signals differ between ranks, so all go by the largest.
            seconds, wanted = self.ranks.largest([time.monotonic() - began, self._asked(stop)])
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
                if now.evaluated < train.evaluations or done:
                    yield self._evaluate(metrics, progress)
            if done or wanted:
                if self.saved_step != now.step or done:
                    yield save()
                self.ranks.lead(lambda: (self.folder / "stop").unlink(missing_ok=True))
                reason = "finished" if done else "stopped"
                metrics.append({"event": "end", "step": now.step, "reason": reason, "exit": 0})
                yield Ended(now.step, reason)
                return
            factor = schedule.factor(train.schedule, now.step, progress)
            optim.set_rate(now.rules, factor)
            outcome = self._step(loss)
            now.step += 1
            tokens += outcome.targets
            if now.average is not None:
                now.average.update(self.model, now.step)
            event = Step(
                now.step,
                outcome.loss,
                train.lr * factor,
                outcome.gradient_norm,
                tokens,
                time.monotonic() - began,
                progress,
            )
            metrics.append(vars(event))
            yield event
            losses.append(outcome.loss)
            if len(losses) == 200 and (trouble := diagnose.stuck(losses, self.task.chance())):
                self.say(f"note: {trouble}")

    def _asked(self, stop: Callable[[], bool]) -> bool:
        """Whether somebody wants the run to end: by a signal, by a file, or by going away."""
        file = self.ranks.leads and (self.folder / "stop").exists()
        return stop() or file or self.ranks.deserted

    def _loss(self) -> step.Loss:
        loss = self.spread.loss(self.model, self._compiles())
        return precision.under(loss, self.precision, next(self.model.parameters()).device)

    def _compiles(self) -> bool:
        """Whether to compile: decided by the config alone, so that a resumed run decides alike."""
        train = self.config.train
        if train.compile != "auto":
            return train.compile == "on"
        # Rows come in many lengths, and every new one would be compiled again.
        fits = type(self.task) is tasks.Stream and shutil.which("c++") is not None
        wanted = fits and self.spread.compiles
        return wanted and self._expected_minutes() >= COMPILE_FROM_MINUTES

    def _expected_minutes(self) -> float:
        """How long the run takes: as told, or by the usual count of 6 operations a weight."""
        train = self.config.train
        if train.minutes is not None:
            return train.minutes
        weights = sum(each.numel() for each in self.model.parameters())
        tokens = self.total_steps * train.batch * self.config.model.length
        device = next(self.model.parameters()).device
        return 6 * weights * tokens / OPERATIONS_A_MINUTE.get(device.type, 1e15)

    def _step(self, loss: step.Loss) -> step.Outcome:
        train = self.config.train
        self.model.train()
        batch = self.task.batch(self.state.step)
        device, ranks = next(self.model.parameters()).device, self.ranks
        parts = micro.cut(batch, self.parts, device, ranks.rank, ranks.world)
        counts = micro.counts(batch)
        memory = self.state.memory
        if memory is not None and isinstance(self.task, tasks.Segments):
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
                self.spread,
            )
            if memory is not None:
                memory.advance()
            return outcome
        except step.NotFiniteError as problem:
            # One rank's rows are enough to spoil everybody's step: the first that knows tells.
            places = ranks.gather(diagnose.first_not_finite(self.model, parts))
            where = next((each for each in places if each), diagnose.BACKWARD)
            raise step.NotFiniteError(
                f"step {self.state.step + 1}: {problem}; it arose in {where}. The weights before "
                f"it are kept; a lower --train.lr or --train.clip may help"
            ) from None

    def _evaluate(self, metrics: Records, progress: float) -> Evaluation:
        now = self.state
        device = next(self.model.parameters()).device
        with now.average.lent_to(self.model) if now.average else nullcontext():
            model = self.spread.gathered(self.model, lambda: outline(self.config.model))
            with precision.context(self.precision, device):
                figures = self.ranks.share(self.task.evaluate(model))
            sample = None if self.sample is None else self.sample(self, model)
        value = figures[self.task.figure]
        sign = 1 if self.task.larger_is_better else -1
        best = now.best is None or sign * value > sign * now.best["value"]
        now.since_best = 0 if best else now.since_best + 1
        if best:
            now.best = {"step": now.step, "value": value}
        # By progress and not by counting: an evaluation that a long step jumped over is gone.
        now.evaluated = max(
            now.evaluated + 1, math.floor(min(progress, 1.0) * self.config.train.evaluations)
        )
        metrics.append({"event": "evaluation", "step": now.step, "best": best, **figures})
        if sample is not None:
            samples = Records(self.folder / "samples.jsonl")
            samples.append({"step": now.step, "text": sample})
            samples.close()
        return Evaluation(now.step, figures, best, sample)

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

    def _lost_patience(self) -> bool:
        patience = self.config.train.patience
        return patience is not None and self.state.since_best >= patience

    def _write_identity(self) -> None:
        """What the folder needs besides checkpoints, to be opened by any verb."""
        write_json(self.folder / "config.json", to_json(self.config))
        write_json(self.folder / "tokenizer.json", self.task.tokenizer.to_json())


def continued(saved: RunConfig, asked: RunConfig) -> RunConfig:
    """The saved config with what may be changed taken from the asked one; else ValueError."""
    wrong = []
    old, new = to_json(saved), to_json(asked)
    # What the data told is in the saved config only.
    told = {"vocabulary", "head", "marks", "sides"} & old["model"].keys()
    new["model"] |= {key: old["model"][key] for key in told}
    for part in ("model", "data", "train"):
        for name, value in old[part].items():
            if new[part].get(name) != value and name not in CHANGEABLE:
                wrong.append(f"{part}.{name} ({value} before, {new[part].get(name)} now)")
    before, now = (each.origin and each.origin.sha256[:12] for each in (saved, asked))
    if before != now:
        wrong.append(f"origin ({before} before, {now} now)")
    if wrong:
        raise ValueError(
            f"a run cannot go on with other settings: {'; '.join(wrong)}. Leave them out, or "
            f"start a new run in another folder"
        )
    changed = {name: new["train"][name] for name in CHANGEABLE}
    return run_from_json({**old, "train": {**old["train"], **changed}})


def require_writable(folder: Path) -> None:
    """Find out now, and not at the first checkpoint."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink(missing_ok=True)
    except OSError as problem:
        raise ValueError(
            f"the run folder {folder} cannot be written to: {problem.strerror}; choose another "
            f"--out"
        ) from None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process for each run folder; the lock goes with the process, however it ends."""
    with (folder / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise ValueError(
                f"{folder} is being trained by another process ({file.read().strip()}): stop it "
                f"first, or choose another --out"
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}")
        file.flush()
        yield


def about_machine() -> dict[str, Any]:
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }


def device_of(name: str) -> torch.device:
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def write_json(path: Path, value: Any) -> None:
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    temporary.write_text(json.dumps(value, indent=1, ensure_ascii=False))
    temporary.replace(path)
