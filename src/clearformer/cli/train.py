"""`clearformer train gpt2-small --data my.txt --out runs/mine`: start or continue a run."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import tyro

from clearformer.cli import parser
from clearformer.cli.inputs import announce
from clearformer.cli.output import say, tell, tell_text
from clearformer.cli.overrides import (
    choose,
    expand,
    given,
    names_of_open_settings,
    spelled,
    without,
)
from clearformer.cli.resource_errors import resource_error
from clearformer.cli.standard_streams import optional_output
from clearformer.cli.train_help import usual_help
from clearformer.config import (
    DataConfig,
    GenerationDefaults,
    ModelConfig,
    RunConfig,
    TextTask,
    TrainConfig,
)
from clearformer.config.settings import BUDGETS as BUDGETS
from clearformer.config.settings import LEARNING_RATE_NEEDED
from clearformer.data.table_files import is_table
from clearformer.families import presets
from clearformer.runs.signals import StopSignals
from clearformer.runs.start import ADAPTED, config_in_file, run_folder, starting_config

if TYPE_CHECKING:
    from torch import nn

    from clearformer.data import DataFolders
    from clearformer.distributed.process_group import ProcessGroup


@dataclass(frozen=True)
class Log:
    """Settings of the log."""

    samples: bool = False
    """Log the samples of each step: rows of a table, offsets in a text."""


@dataclass(frozen=True)
class RunSettings:
    """Settings of the commands that configure a run."""

    preset: tyro.conf.Positional[str]
    model: ModelConfig
    data: DataConfig
    train: TrainConfig
    generation: GenerationDefaults
    task: TextTask | None = None
    """What is predicted of a text: classes, multi-label (any number of labels) or regression (a
    number); none: what the preset predicts."""

    @property
    def config(self) -> RunConfig:
        return RunConfig(
            model=self.model, data=self.data, train=self.train, generation=self.generation
        )


V = TypeVar("V", bound=RunSettings)


@dataclass(frozen=True)
class Train(RunSettings):
    """Train a model on a text, labelled texts or pairs; Ctrl-C saves, --resume goes on."""

    preset: tyro.conf.Positional[str]
    """A preset (`clearformer describe` lists them); with --from: nothing, or for a new head
    classify, multi-label, regression, classify-pairs, label or answer."""
    from_: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """A run or checkpoint to fine-tune, with its tokenizer."""
    out: Path | None = None
    """The run's folder; none: runs/PRESET-DATA."""
    resume: bool = False
    """Resume the run in the folder, or start it if there is none."""
    fit: str | None = None
    """Memory limit, such as 4GB: uses accumulation and recomputation as `plan` suggests."""
    data_dir: Path | None = None
    """Folder with corpora; none: CLEARFORMER_DATA, then the cache, then a download."""
    processes: int | None = None
    """Number of processes on this machine, which share each batch; none: this one only."""
    shares: str | None = None
    """Draw a learning curve: train on these shares of the data, such as 0.1,0.3,1, each in a folder
    of --out."""
    quiet: bool = False
    """Print only the result."""
    json: bool = False
    """Print every event as a line of JSON."""
    words: tyro.conf.Suppress[tuple[str, ...]] = ()
    allow_changed_data: bool = False
    """Resume even if the data has changed since the run was started."""
    verify: bool = False
    """Run `verify` first, and warn if a bug makes the metrics unreliable."""
    logs: Annotated[tuple[Literal["tensorboard", "wandb"], ...], tyro.conf.arg(name="log")] = ()
    """Also write the metrics for TensorBoard or Weights & Biases, into the run's folder."""
    log: Log = Log()

    def run(self) -> None:
        from clearformer.runs.lock import writable

        announce(self.data.source, "data")
        if self.shares is not None:
            self._draw_curve(self.shares)
            return
        with optional_output():
            with writable(self.folder):  # before the slow import of torch
                group, code = self._outcome()
            # Here nothing refers to the model any more, as `exit` requires.
            group.exit(code, tell)

    def _draw_curve(self, text: str) -> None:
        """Train on each share, and print what it reached."""
        from clearformer.learning_curve import PICTURE, learning_curve

        try:
            shares = [float(each.rstrip("%")) / (100 if "%" in each else 1)
                      for each in text.split(",")]  # fmt: skip
        except ValueError:
            raise ValueError(f"--shares is {text!r}, but it must be like 0.1,0.3,1") from None
        if self.processes is not None:
            raise ValueError("--shares does not go with --processes: leave one of them out")
        points = learning_curve(
            self.preset,
            shares=shares,
            out=self.folder,
            config=self.config,
            from_=self.from_,
            resume=self.resume,
            fit=self.fit,
            data_dir=self.data_dir,
            quiet=self.quiet,
            json=self.json,
        )
        for point in points:
            say(point.line())
        if len(points) > 1:
            say(f"picture: {self.folder / PICTURE}")

    def _outcome(self) -> tuple[ProcessGroup, int]:
        """The process group that trained, and the exit code; a launcher exits here."""
        from clearformer.cli.launch import launch, starts_processes

        if starts_processes(self.processes, os.environ):
            assert self.processes is not None
            sys.exit(launch(self.processes, ("train", *self.words), self.folder))
        from clearformer.distributed import process_group
        from clearformer.runs.exit_codes import DEFECT, MISTAKE, exit_code
        from clearformer.training.step import NonFiniteError

        group = process_group.join(os.environ, self.train.timeout_seconds)
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
        return self.out or run_folder(self.preset, self.data)

    def _train(self, group: ProcessGroup) -> int:
        """Train in this process group; the exit code."""
        from clearformer.run_training import Training
        from clearformer.runs.progress import Silent, reporter

        training = Training(
            self.preset,
            config=self.config,
            out=self.folder,
            from_=self.from_,
            resume=self.resume,
            fit=self.fit,
            data_dir=self.data_dir,
            allow_changed_data=self.allow_changed_data,
            log=self.logs,
            log_samples=self.log.samples,
            on_start=self._verify(group) if self.verify else None,
        )
        report = reporter(quiet=self.quiet, json=self.json) if group.is_main else Silent()
        with StopSignals() as signals:
            return training.execute(report, signals.exit_code, group)

    def _verify(self, group: ProcessGroup) -> Callable[[nn.Module], None]:
        """Look for bugs in the model that is about to be trained, and warn."""
        from clearformer.builder import build
        from clearformer.cli.verify import warn

        if group.world_size == 1:
            return warn
        return lambda _: warn(build(self.model))  # the model itself is spread over processes


def places(folder: Path | None) -> DataFolders:
    """Where to look for corpora: the flag, the environment, the user's cache."""
    from clearformer.data import DataFolders

    return DataFolders.from_environment(folder)


def parse(arguments: Sequence[str]) -> Train:
    """Read `clearformer train`'s words: the preset gives the defaults, flags change them.

    A flag may be written by the end of its path (`--minutes` for `--train.minutes`) where only
    one field has it; `--optimizer muon` chooses another kind of value.
    """
    words = with_data_flag(arguments)
    default = replace(defaults(words), words=tuple(words))
    if "--help-all" not in words and {"-h", "--help"} & set(words):
        for line in usual_help(default):
            say(line)
        raise SystemExit(0)
    words = ["--help" if word == "--help-all" else word for word in words]
    return read(Train, default, without(words, "--config"), "clearformer train")


def with_data_flag(arguments: Sequence[str]) -> list[str]:
    """A file or folder that was given without --data gets the flag."""
    words = list(arguments)
    if given(words, "--data") is not None or given(words, "--data.source") is not None:
        return words
    for place, word in enumerate(words[:2]):
        if word.startswith("-"):
            break
        if word not in (*ADAPTED, *presets()) and os.path.exists(word):
            return [*words[:place], "--data", *words[place:]]
    return words


def read(verb: type[V], default: V, words: Sequence[str], program: str) -> V:
    """Parse words over defaults, for every command with the settings of a run."""
    before = default
    words, default = choose(words, default)
    words = spelled([expand(word, default) for word in words], default)
    other = type(default.train.optimizer) is not type(before.train.optimizer)
    if other and given(words, "--train.learning-rate") is None:
        raise ValueError(LEARNING_RATE_NEEDED)
    budget = next((b for b in BUDGETS if any(w.startswith(f"--train.{b}") for w in words)), None)
    if budget is not None:  # it replaces that of the defaults
        empty: dict[str, Any] = dict.fromkeys(BUDGETS) | {budget: 1}
        default = replace(default, train=replace(default.train, **empty))
    parsed = parser.read(
        verb,
        words,
        program,
        default=default,
        config=(tyro.conf.AvoidSubcommands,),
        registry=names_of_open_settings(),
    )
    # The defaults were chosen by the first word; a preset after a flag would not be used.
    if words[:1] and words[0].startswith("-") and parsed.preset != default.preset:
        raise ValueError(f"{parsed.preset!r} comes first: {program} {parsed.preset} {words[0]} ...")
    return parsed


def defaults(words: Sequence[str]) -> Train:
    """The settings that flags change: of the run to resume, the one to begin from, or a preset."""
    name = words[0] if words and not words[0].startswith("-") else None
    source, out, data = (given(words, flag) for flag in ("--from", "--out", "--data"))
    place, folder = (None if path is None else Path(path) for path in (source, out))
    if (file := given(words, "--config")) is not None:
        if name is not None or source is not None:
            raise ValueError("--config has the settings of a whole run: leave out the preset")
        config = config_in_file(Path(file))
        origin = None if config.origin is None else Path(config.origin.folder)
        return replace(from_config(config.model.name, config), from_=origin)
    table = data is not None and is_table(data)
    task: Any = given(words, "--task")
    return from_config(*starting_config(name, place, folder, "--resume" in words, table, task))


def from_config(name: str, config: RunConfig) -> Train:
    return Train(
        preset=name,
        model=config.model,
        data=config.data,
        train=config.train,
        generation=config.generation,
    )
