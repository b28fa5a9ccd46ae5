"""`clearformer train gpt2-small --data my.txt --out runs/mine`: start or continue a run."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import tyro

from clearformer.cli.inputs import announce
from clearformer.cli.output import tell, tell_text
from clearformer.cli.overrides import choose, expand, given, names_of_open_settings, spelled
from clearformer.cli.resource_errors import resource_error
from clearformer.cli.signals import StopSignals
from clearformer.cli.standard_streams import optional_output
from clearformer.config import (
    DataConfig,
    ModelConfig,
    RunConfig,
    TrainConfig,
    run_from_json,
    to_json,
)

if TYPE_CHECKING:
    from clearformer.cli.progress import Reporter
    from clearformer.data import DataFolders
    from clearformer.distributed.process_group import ProcessGroup
    from clearformer.runs.run import Model, Run

DEFAULT = "modern-tiny"
CLASSIFY = "classify"  # in the place of a preset: a new head on what --from names
BUDGETS = ("steps", "epochs", "minutes")


@dataclass(frozen=True)
class Log:
    """What is written beside the figures."""

    samples: bool = False
    """Which samples each step learns from: rows of a table, places in a text."""


@dataclass(frozen=True)
class RunSettings:
    """What every command with the settings of a run has."""

    preset: tyro.conf.Positional[str]
    model: ModelConfig
    data: DataConfig
    train: TrainConfig


V = TypeVar("V", bound=RunSettings)


@dataclass(frozen=True)
class Train(RunSettings):
    """Train a model on a text, labelled texts or pairs; Ctrl-C saves, --resume goes on."""

    preset: tyro.conf.Positional[str]
    """A preset (`clearformer describe` lists them); with --from: nothing, or classify."""
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
                group, code = self._outcome()
            # Here nothing refers to the model any more, as `exit` requires.
            group.exit(code, tell)

    def _outcome(self) -> tuple[ProcessGroup, int]:
        """The process group that trained, and the exit code; a launcher exits here."""
        from clearformer.cli.launch import launch, starts_processes

        if starts_processes(self.processes, os.environ):
            assert self.processes is not None
            sys.exit(launch(self.processes, ("train", *self.words), self.folder))
        from clearformer.distributed import process_group
        from clearformer.runs.exit_codes import DEFECT, MISTAKE, exit_code
        from clearformer.train.step import NonFiniteError

        group = process_group.join(os.environ, self.train.wait_seconds)
        try:
            return group, self._train(group)
        except (ValueError, OSError, NonFiniteError) as problem:
            sentence, code = str(problem), exit_code(problem)
        except Exception as problem:
            if not (known := resource_error(problem)):
                tell_text(traceback.format_exc())
                return group, DEFECT
            sentence, code = known, MISTAKE
        if group.first_to_report(sentence):
            tell(f"clearformer: {sentence}")
        return group, code

    @property
    def folder(self) -> Path:
        return self.out or Path("runs") / f"{self.preset}-{Path(self.data.source).stem}"

    def _train(self, group: ProcessGroup) -> int:
        from clearformer.cli.progress import Silent, reporter
        from clearformer.runs.memory_check import out_of_memory
        from clearformer.runs.resume import require_finite_end
        from clearformer.runs.start import saved_config
        from clearformer.train.step import is_out_of_memory

        report: Reporter = Silent()
        if group.is_main:
            report = reporter(quiet=self.quiet, json=self.json)
        if group.restarts:
            require_finite_end(self.folder)
        saved = saved_config(self.folder) if self.resume else None
        config = self._fitted(self._config(saved), saved, group, report.say)
        run, code, memory_error = None, 0, ""
        try:
            run = self._open(config, group, report.say)
            report.start(run)
            code = self._events(run, report)
        except (RuntimeError, MemoryError) as problem:
            if explained := group.explain(problem):
                raise ValueError(explained) from None
            if not is_out_of_memory(problem):
                raise
            memory_error = str(problem) or "no memory"
        finally:
            report.close()
        if memory_error:  # outside the handler, which keeps the failed step alive
            # With several ranks nothing is tried out: the others wait for every step.
            tries = run is not None and group.world_size == 1
            fitting = (run.fewest_micro_batches() or 0) if run and tries else None
            raise ValueError(out_of_memory(config, memory_error, fitting))
        if group.is_main and run is not None:
            write_summary(run)
            report.end(run)
        return code

    def _config(self, saved: RunConfig | None) -> RunConfig:
        from clearformer.runs import finetune
        from clearformer.runs.start import with_absolute_paths

        origin = None if saved is None else saved.origin
        if saved is None and self.from_ is not None:
            origin = finetune.read(self.from_).origin
        data = with_absolute_paths(self.data)
        return RunConfig(model=self.model, data=data, train=self.train, origin=origin)

    def _fitted(
        self,
        config: RunConfig,
        saved: RunConfig | None,
        group: ProcessGroup,
        say: Callable[[str], None],
    ) -> RunConfig:
        """The config with what --fit changes; planned by one rank, since memory use differs."""
        if self.fit is None:
            return config
        from clearformer.plan.fit import fit_to_memory
        from clearformer.train import malloc

        limit = self.fit
        malloc.limit_fragmentation()
        fitted = group.on_main(
            lambda: to_json(fit_to_memory(config, limit, places(self.data_dir), say, saved))
        )
        return run_from_json(fitted)

    def _open(self, config: RunConfig, group: ProcessGroup, say: Callable[[str], None]) -> Run:
        from clearformer.runs import faults
        from clearformer.runs.run import Run

        return Run(
            config,
            self.folder,
            places(self.data_dir),
            resume=self.resume,
            say=say,
            sample=sample,
            group=group,
            faults=faults.parse(os.environ.get(faults.VARIABLE)),
            allow_changed_data=self.allow_changed_data,
        )

    def _events(self, run: Run, report: Reporter) -> int:
        """Report the events of a run; its exit code."""
        from clearformer.train.events import Ended, Step

        code = 0
        with StopSignals() as signals:
            for event in run.events(signals.exit_code):
                report.event(event)
                if isinstance(event, Ended):
                    code = event.exit
                if self.log.samples and isinstance(event, Step):
                    report.samples(event.step, run.sample_ids(event.step))
        return code


def sample(run: Run, model: Model) -> str | None:
    """What a model in training writes."""
    return run.task.sample(model)


def write_summary(run: Run) -> None:
    """Write the loss curve and the card of a finished run; an error is a note."""
    try:
        _write_summary(run)
    except Exception as problem:
        run.say(f"note: its curve or its card could not be written: {problem}")


def _write_summary(run: Run) -> None:
    from clearformer import safe_files
    from clearformer.explore import figures
    from clearformer.runs.card import card
    from clearformer.runs.metrics import read

    records = read(run.folder / "metrics.jsonl")
    if any(record["event"] == "step" for record in records):
        drawing = figures.curve(records, run.task.metric, run.config.model.name)
        safe_files.replace(run.folder / "loss.png", figures.png(drawing))
    safe_files.replace(run.folder / "README.md", card(run).encode())


def places(folder: Path | None) -> DataFolders:
    """Where to look for corpora: the flag, the environment, the user's cache."""
    from clearformer.data import DataFolders

    return DataFolders.from_environment(folder)


def parse(arguments: Sequence[str]) -> Train:
    """Read `clearformer train`'s words: the preset gives the defaults, flags change them.

    A flag may be written by the end of its path (`--minutes` for `--train.minutes`) where only
    one field has it; `--optimizer muon` chooses another kind of value.
    """
    words = list(arguments)
    return read(Train, replace(defaults(words), words=tuple(words)), words, "clearformer train")


def read(verb: type[V], default: V, words: Sequence[str], program: str) -> V:
    """Parse words over defaults, for every command with the settings of a run."""
    before = default
    words, default = choose(words, default)
    words = spelled([expand(word, default) for word in words], default)
    other = type(default.train.optimizer) is not type(before.train.optimizer)
    if other and given(words, "--train.lr") is None:
        raise ValueError(
            "another optimizer needs another learning rate: add --lr (usual are 0.02 for Muon and "
            "1e-3 for AdamW)"
        )
    budget = next((b for b in BUDGETS if any(w.startswith(f"--train.{b}") for w in words)), None)
    if budget is not None:  # it replaces that of the defaults
        empty: dict[str, Any] = dict.fromkeys(BUDGETS) | {budget: 1}
        default = replace(default, train=replace(default.train, **empty))
    parsed = tyro.cli(
        verb,
        prog=program,
        default=default,
        args=words,
        config=(tyro.conf.AvoidSubcommands,),
        registry=names_of_open_settings(),
    )
    # The defaults were chosen by the first word; a preset after a flag would not be used.
    if words[:1] and words[0].startswith("-") and parsed.preset != default.preset:
        raise ValueError(f"{parsed.preset!r} comes first: {program} {parsed.preset} {words[0]} ...")
    return parsed


def defaults(words: Sequence[str]) -> Train:
    """The settings that flags change: of the run to resume, the one to begin from, or a preset."""
    from clearformer.runs.start import finetune_config, preset_config, saved_config

    name = words[0] if words and not words[0].startswith("-") else None
    source, out = (given(words, flag) for flag in ("--from", "--out"))
    if "--resume" in words and out is not None and (name is None or source is not None):
        saved = saved_config(Path(out))
        if saved is not None:
            return from_config(name or saved.model.name, saved)
    if source is not None:
        if name not in (None, CLASSIFY):
            raise ValueError(
                f"with --from the model is that of {source}: leave out {name!r}, or say classify"
            )
        config = finetune_config(Path(source), classify=name == CLASSIFY)
        return from_config(name or config.model.name, config)
    if name == CLASSIFY:
        raise ValueError("classify gives a trained model a new head: say which with --from RUN")
    name = DEFAULT if name is None else name
    return from_config(name, preset_config(name))


def from_config(name: str, config: RunConfig) -> Train:
    return Train(preset=name, model=config.model, data=config.data, train=config.train)
