"""`clearformer train gpt2-small --data my.txt --out runs/mine`: start or continue a run."""

from __future__ import annotations

import glob
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import tyro

from clearformer import limits
from clearformer.cli.inputs import announce
from clearformer.cli.memory_fit import fitted, out_of_memory
from clearformer.cli.output import tell, tell_text
from clearformer.cli.overrides import choose, expand, given, spelled
from clearformer.cli.resource_errors import lacking
from clearformer.cli.signals import Stopping
from clearformer.cli.standard_streams import optional_output
from clearformer.config import DataConfig, ModelConfig, Origin, RunConfig, TrainConfig

if TYPE_CHECKING:
    from clearformer.data import Places
    from clearformer.distributed.process_group import Alone
    from clearformer.runs.run import Model, Run

V = TypeVar("V")
DEFAULT = "modern-tiny"
CLASSIFY = "classify"  # in the place of a preset: a new head on what --from names
BUDGETS = ("steps", "epochs", "minutes")


@dataclass(frozen=True)
class Log:
    """What is written beside the figures."""

    samples: bool = False
    """Which samples each step learns from: rows of a table, places in a text."""


@dataclass(frozen=True)
class Train:
    """Train a model on a text, labelled texts or pairs; Ctrl-C saves, --resume goes on."""

    preset: tyro.conf.Positional[str]
    """A preset (`clearformer describe` lists them); with --from: nothing, or classify."""
    model: ModelConfig
    data: DataConfig
    train: TrainConfig
    from_: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """A run or checkpoint whose body and tokenizer to begin with; classify gives it a new head."""
    out: Path | None = None
    """The run's folder; none: runs/PRESET-DATA."""
    resume: bool = False
    """Go on where the run in the folder stands, or start it."""
    fit: str | None = None
    """Memory that the run may take, such as 4GB: it is cut and recomputed as `plan` says."""
    data_dir: Path | None = None
    """Where corpora lie; none: CLEARFORMER_DATA, then the cache, then a download."""
    processes: int | None = None
    """Start so many processes on this machine, which share each batch; none: this one alone."""
    quiet: bool = False
    """Say only the result."""
    json: bool = False
    """Say every event as a line of JSON."""
    words: tyro.conf.Suppress[tuple[str, ...]] = ()
    allow_changed_data: bool = False
    """Go on although the data is no longer what the run was trained with."""
    log: Log = Log()

    def run(self) -> None:
        from clearformer.runs.lock import writable

        announce(self.data.source, "data")
        with optional_output():
            with writable(self.folder):  # before torch is imported: a mistake is said at once
                ranks, code = self._outcome()
            # By now nothing holds the model any more, as `leave` asks.
            ranks.leave(code, tell)

    def _outcome(self) -> tuple[Alone, int]:
        """Who has trained, and the exit code; a process that starts others leaves with theirs."""
        if starts_others(self.processes, os.environ):
            from clearformer.cli.launch import launch

            assert self.processes is not None
            sys.exit(launch(self.processes, ("train", *self.words), self.folder))
        from clearformer.distributed import process_group
        from clearformer.train.step import NotFiniteError

        ranks = process_group.join(os.environ, self.train.wait_seconds)
        try:
            return ranks, self._train(ranks)
        except (ValueError, OSError, NotFiniteError) as mistake:
            if ranks.first_to_say(str(mistake)):
                tell(f"clearformer: {mistake}")
            return ranks, 3 if isinstance(mistake, NotFiniteError) else 2
        except Exception as problem:
            if sentence := lacking(problem):
                if ranks.first_to_say(sentence):
                    tell(f"clearformer: {sentence}")
                return ranks, 2
            tell_text(traceback.format_exc())
            return ranks, 1

    @property
    def folder(self) -> Path:
        return self.out or Path("runs") / f"{self.preset}-{Path(self.data.source).stem}"

    def _train(self, ranks: Alone) -> int:
        from clearformer.cli.progress import Nobody, reporter
        from clearformer.runs import faults
        from clearformer.runs.run import Run
        from clearformer.train.events import Ended, Step
        from clearformer.train.step import is_out_of_memory

        out = self.folder
        planned = faults.parse(os.environ.get(faults.VARIABLE))
        config = RunConfig(
            model=self.model,
            data=found_from_anywhere(self.data),
            train=self.train,
            origin=self._origin(out),
        )
        report = reporter(quiet=self.quiet, json=self.json) if ranks.leads else Nobody()
        if ranks.restarts:
            require_another_end(out)
        if self.fit is not None:
            saved = own_config(out) if self.resume else None
            config = fitted(config, self.fit, self.data_dir, report.say, saved)
        stopping = Stopping()
        full, fitting, code = "", None, 0
        try:
            run = Run(
                config,
                out,
                places(self.data_dir),
                resume=self.resume,
                say=report.say,
                sample=sample,
                ranks=ranks,
                faults=planned,
                allow_changed_data=self.allow_changed_data,
            )
            # Where others wait for every step, nothing is tried out.
            fitting = run.fitting if ranks.world == 1 else None
            report.start(run)
            with stopping:
                for event in run.events(stopping.asked):
                    report.event(event)
                    if isinstance(event, Ended):
                        code = event.exit
                    if self.log.samples and isinstance(event, Step):
                        report.samples(event.step, run.sample_ids(event.step))
        except (RuntimeError, MemoryError) as problem:
            if explained := ranks.explain(problem):
                raise ValueError(explained) from None
            if not is_out_of_memory(problem):
                raise
            full = str(problem) or "no memory"
        finally:
            report.close()
        if full:  # out of the handler, which keeps the step that did not fit alive
            fits = (fitting() or 0) if fitting else None
            raise ValueError(out_of_memory(config, full, fits))
        if ranks.leads:
            picture(run)
            report.end(run)
        return code

    def _origin(self, out: Path) -> Origin | None:
        """What the run begins from; one that goes on knows it already."""
        saved = own_config(out) if self.resume else None
        if saved is not None:
            return saved.origin
        if self.from_ is None:
            return None
        from clearformer.runs import finetune

        return finetune.read(self.from_).origin


def starts_others(processes: int | None, environment: Mapping[str, str]) -> bool:
    """Whether this process is to start the others, and is not itself one that was started."""
    if processes is None:
        return False
    if processes < 1:
        raise ValueError(f"--processes is {processes}, but it must be at least 1")
    cores = os.cpu_count() or 1
    most = min(limits.MOST_PROCESSES, max(8, 4 * cores))
    if processes > most:
        raise ValueError(
            f"--processes is {processes!r:.60}, but this machine of {cores} cores is of use to at "
            f"most {most}: start fewer"
        )
    started = environment.get("WORLD_SIZE")
    if started not in (None, str(processes)):
        raise ValueError(
            f"torchrun has started {started} processes, but --processes says {processes}: leave it "
            f"out"
        )
    return started is None


def require_another_end(folder: Path) -> None:
    """A run that torchrun starts again must not run into the same wall: that changes nothing."""
    from clearformer.runs.metrics import read
    from clearformer.train.step import NotFiniteError

    records = read(folder / "metrics.jsonl")
    if records and records[-1].get("exit") == 3:
        raise NotFiniteError(
            f"{folder} ended at step {records[-1]['step']} because a number was not finite, and "
            f"would again: change its settings, or start without torchrun's restarts"
        )


def found_from_anywhere(data: DataConfig) -> DataConfig:
    """The data with its files by their whole path, so that a run goes on from any folder."""
    from clearformer.data import CORPORA

    def whole(source: str) -> str:
        if source == "-" or source in CORPORA:
            return source
        if Path(source).exists() or glob.has_magic(source):
            return os.path.abspath(source)
        parts = source.split(",")  # the two sides of pairs
        there = len(parts) > 1 and all(Path(part).exists() for part in parts)
        return ",".join(map(os.path.abspath, parts)) if there else source

    held_back = None if data.validation is None else whole(data.validation)
    return replace(data, source=whole(data.source), validation=held_back)


def sample(run: Run, model: Model) -> str | None:
    """What a model in training writes."""
    return run.task.sample(model)


def picture(run: Run) -> None:
    """The run's curve and its card, beside the checkpoints: the run is over, and no trouble with
    them makes it another one."""
    try:
        _picture(run)
    except Exception as problem:
        run.say(f"note: its curve or its card could not be written: {problem}")


def _picture(run: Run) -> None:
    from clearformer import safe_files
    from clearformer.explore import figures
    from clearformer.runs.card import card
    from clearformer.runs.metrics import read

    records = read(run.folder / "metrics.jsonl")
    if any(record["event"] == "step" for record in records):
        drawing = figures.curve(records, run.task.metric, run.config.model.name)
        safe_files.replace(run.folder / "loss.png", figures.png(drawing))
    safe_files.replace(run.folder / "README.md", card(run).encode())


def places(folder: Path | None) -> Places:
    """Where to look for corpora: the flag, the environment, the user's cache."""
    from clearformer.data import Places

    given = os.environ.get("CLEARFORMER_DATA")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clearformer"
    return Places(folder or (Path(given) if given else None), cache)


def parse(arguments: Sequence[str]) -> Train:
    """Read `clearformer train`'s words: the preset gives the defaults, flags change them.

    A flag may be written by the end of its path (`--minutes` for `--train.minutes`) where only
    one field has it; `--optimizer muon` chooses another kind of value.
    """
    words = list(arguments)
    return read(Train, replace(defaults(words), words=tuple(words)), words, "clearformer train")


def read(verb: type[V], default: V, words: Sequence[str], program: str) -> V:
    """Words over a default, for every verb that takes a run's settings."""
    before: Any = default
    words, default = choose(words, default)
    now: Any = default
    words = spelled([expand(word, default) for word in words], default)
    other = type(now.train.optimizer) is not type(before.train.optimizer)
    if other and given(words, "--train.lr") is None:
        raise ValueError(
            "another optimizer needs another learning rate: add --lr (usual are 0.02 for Muon and "
            "1e-3 for AdamW)"
        )
    budget = next((b for b in BUDGETS if any(w.startswith(f"--train.{b}") for w in words)), None)
    if budget is not None:
        empty = dict.fromkeys(BUDGETS) | {budget: 1}
        train = replace(default.train, **empty)  # type: ignore[attr-defined]
        default = replace(default, train=train)  # type: ignore[type-var]
    found = tyro.cli(
        verb,
        prog=program,
        default=default,
        args=words,
        config=(tyro.conf.AvoidSubcommands,),
    )
    # The defaults were chosen by the first word; another one later would be another model's name.
    preset = found.preset  # type: ignore[attr-defined]
    if words[:1] and words[0].startswith("-") and preset != now.preset:
        raise ValueError(f"{preset!r} comes first: {program} {preset} {words[0]} ...")
    return found


def defaults(words: Sequence[str]) -> Train:
    """What the flags change: the run that goes on, the one to begin from, or a preset."""
    from clearformer.families import preset
    from clearformer.families.recipes import recipe

    name = words[0] if words and not words[0].startswith("-") else None
    source, out = (given(words, flag) for flag in ("--from", "--out"))
    if "--resume" in words and out is not None and (name is None or source is not None):
        own = own_config(Path(out))
        if own is not None:
            name = name or own.model.name
            return Train(preset=name, model=own.model, data=own.data, train=own.train)
    if source is not None:
        return beginning(name, Path(source))
    if name == CLASSIFY:
        raise ValueError("classify gives a trained model a new head: say which with --from RUN")
    name = DEFAULT if name is None else name
    model = preset(name)
    data, train = recipe(model)
    return Train(preset=name, model=model, data=data, train=train)


def beginning(name: str | None, source: Path) -> Train:
    """The model of `source`, going on as it is, or with the head of a classifier."""
    from clearformer.config import Classifier
    from clearformer.families.recipes import going_on
    from clearformer.runs import finetune

    if name not in (None, CLASSIFY):
        raise ValueError(
            f"with --from the model is that of {source}: leave out {name!r}, or say classify"
        )
    found = finetune.read(source)
    model = found.config.model
    if name == CLASSIFY and "classify" not in model.verbs:
        pool = model.head.classifier_pool(causal=model.past is not None)
        model = replace(model, head=Classifier(pool=pool))
    data, train = going_on(model, found.tokenizer.kind, found.tokenizer.size)
    return Train(preset=name or model.name, model=model, data=data, train=train)


def own_config(folder: Path) -> RunConfig | None:
    """The config that the run in this folder wrote down, if there is one."""
    from clearformer.config import run_from_json
    from clearformer.safe_json import read_run_json

    path = folder / "config.json"
    if not os.path.lexists(path):
        return None
    found = read_run_json(path)
    try:
        return run_from_json(found)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{path} cannot be read: {problem}") from None
