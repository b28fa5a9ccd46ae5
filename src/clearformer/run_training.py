"""Training from Python: `train(...)` returns a Model, `Training(...)` is an iterable of events.

The command line makes the same calls; `runs` does the work.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from clearformer.arguments import as_path
from clearformer.config import AnyModelConfig, Origin, RunConfig, TextTask, run_from_json, to_json
from clearformer.config.settings import BUDGETS, with_settings
from clearformer.data.in_memory import InMemory, in_memory_data
from clearformer.data.reading_progress import as_lines, listening
from clearformer.data.table_files import is_table
from clearformer.runs.lock import writable
from clearformer.runs.log_writers import open_logs, require_logs
from clearformer.runs.progress import Notes, Reporter, Silent, reporter
from clearformer.runs.signals import StopOnInterrupt
from clearformer.runs.start import (
    config_in_file,
    run_folder,
    saved_config,
    starting_config,
    with_absolute_paths,
    with_task,
)

if TYPE_CHECKING:
    from torch import nn

    from clearformer.distributed.process_group import ProcessGroup
    from clearformer.model import Model
    from clearformer.runs.logs import Logs
    from clearformer.runs.run import Run
    from clearformer.training.events import Event

STDIN = "-"
STOPPED = 130  # exit code of a run that `stop` or Ctrl-C ended
BY_RECIPE = (*BUDGETS, "learning_rate", "batch_size", "seed")  # None: as the recipe has it
Data = (
    str
    | os.PathLike[str]
    | Iterable[str]
    | Iterable[tuple[str, object]]
    | Iterable[Mapping[str, object]]
    | Mapping[str, Sequence[object]]
)


def train(
    preset: str | AnyModelConfig | None = None,
    *,
    data: Data | None = None,
    out: str | os.PathLike[str] | None = None,
    **options: object,
) -> Model:
    """Train a model and return it; the same as ``clearformer train``.

    Shows its progress: a live line in a terminal, a progress bar in a notebook, plain lines
    elsewhere. Ctrl-C, or interrupting the notebook's kernel, saves at the next step and returns the
    model as it was saved; ``train(out=..., resume=True)`` continues it.

    Every setting of a run is a keyword, by its full path (``**{"model.dropout.embedding": 0.1}``)
    or the end of its path where that is unambiguous (``layers=6``). A setting that
    takes values of several classes takes a value (``optimizer=cf.config.AdamW(beta2=0.98)``) or
    the name of a class (``optimizer="muon"``).

    Args:
        preset (str or ModelConfig, optional): A preset (``cf.presets()`` lists them) or a model's
            config. With `from_`: nothing, or for a new head ``"classify"``,
            ``"multi-label"``, ``"regression"``, ``"classify-pairs"``, ``"label"`` or ``"answer"``.
            Default: ``"modern-tiny"``, for a table ``"classifier-small"``.
        data (str, path or list, optional): A corpus by name, a file, a folder or a glob; or texts
            in memory: a list of strings, of (text, label) pairs for a classifier, of
            (source, target) pairs for a translator, of dicts, a pandas or polars frame or a
            ``datasets.Dataset``. Those are written into the run folder. Default: the corpus of
            the preset's recipe.
        text, label (str, optional): Columns of a table, a frame or dicts. Default: ``"text"`` and
            ``"label"``.
        task (str, optional): What is predicted of a text: ``"classes"``, ``"multi-label"`` (several
            labels, also in several columns: ``label="a,b,c"``) or ``"regression"`` (a number).
            Default: what the preset predicts, a class.
        out (path, optional): The run folder. Default: ``runs/PRESET-DATA``.
        config (RunConfig or path, optional): All settings as one value, or the ``config.json`` of
            a run to repeat, instead of a preset.
        from_ (path, optional): A run or a checkpoint whose weights and tokenizer to start from.
        resume (bool): Continue the run in `out`, or start it. Default: False.
        minutes, steps, epochs (float, int, float, optional): The budget, one of the three.
            Default: that of the recipe, two minutes for most presets.
        learning_rate (float, optional): Default: that of the recipe.
        batch_size (int, optional): Sequences per step. Default: that of the recipe.
        seed (int, optional): Seed of weights, batches and dropout. Default: 0.
        fit (str, optional): Memory that the run may take, such as ``"4GB"``. Default: no limit.
        data_dir (path, optional): Where corpora are. Default: ``CLEARFORMER_DATA``, then the
            cache, then a download.
        allow_changed_data (bool): Resume even if the data has changed. Default: False.
        quiet (bool): Print the result only. Default: False.
        json (bool): Print every event as a line of JSON. Default: False.
        log (str or list, optional): Also write the metrics for ``"tensorboard"``, ``"wandb"`` or
            both, into the run folder. Default: neither.
        log_samples (bool): Also print which samples each step learns from. Default: False.
        on_event (callable, optional): Called with every event (`clearformer.training.events`).
        on_start (callable, optional): Called with the module before the first step, as in
            ``on_start=lambda module: print(cf.verify(module))``. It must not change the module.
        **settings: Any other setting of `ModelConfig`, `DataConfig` or `TrainConfig`.

    Returns:
        Model: The model of the checkpoint that every command uses, the best or the last one.

    Raises:
        ValueError: For an unknown setting (with the nearest name), a wrong value, data that
            cannot be read, a folder that already holds a run, or too little memory.

    Example:
        >>> import clearformer as cf
        >>> model = cf.train("modern-tiny", data="my.txt", steps=2, layers=1, out="runs/mine",
        ...                  quiet=True)  # doctest: +SKIP
    """
    return Training(preset, data=data, out=out, **cast(Any, options)).run()


class Training:
    """A training run that can be iterated for its events.

    Takes the arguments of `train`. Iterating prints notes only. `stop` saves and ends the run;
    breaking out of the loop does not save again. As a context manager it closes the run folder
    when the block ends, however it ends.

    Example:
        >>> training = cf.Training("modern-tiny", data="my.txt", steps=100)  # doctest: +SKIP
        >>> for event in training:  # doctest: +SKIP
        ...     if isinstance(event, Step) and event.loss < 1:
        ...         training.stop()
        >>> training.model.generate("Once upon")  # doctest: +SKIP
    """

    def __init__(
        self,
        preset: str | AnyModelConfig | None = None,
        *,
        data: Data | None = None,
        out: str | os.PathLike[str] | None = None,
        config: RunConfig | str | os.PathLike[str] | None = None,
        from_: str | os.PathLike[str] | None = None,
        task: TextTask | None = None,
        resume: bool = False,
        fit: str | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        allow_changed_data: bool = False,
        quiet: bool = False,
        json: bool = False,
        log: str | Sequence[str] | None = None,
        log_samples: bool = False,
        on_event: Callable[[Event], object] | None = None,
        on_start: Callable[[nn.Module], object] | None = None,
        **settings: object,
    ) -> None:
        if "processes" in settings:
            raise ValueError(
                "processes cannot be given here, since this process trains alone: start several "
                "with clearformer train --processes N, or with torchrun"
            )
        self.log = require_logs(log)
        place = None if out is None else as_path("out", out)
        source = None if from_ is None else as_path("from_", from_)
        self._rows, table = _in_memory(data)
        name, base = _base(preset, config, source, place, resume, table or task is not None)
        base = with_task(base, task)
        if self._rows is not None:
            data = self._rows.file_name(_reads_tables(base))
        given = {n: v for n, v in settings.items() if v is not None or n not in BY_RECIPE}
        if data is not None:
            given["data.source"] = data
        base = with_settings(base, given)
        self._from_stdin = base.data.source == STDIN
        if self._from_stdin:  # what can be read once is kept, so that it can be evaluated later
            base = replace(base, data=replace(base.data, source="data.txt"))
        self.folder = place or run_folder(name, base.data)
        if self._rows is not None or self._from_stdin:
            file = os.path.abspath(self.folder / base.data.source)
            base = replace(base, data=replace(base.data, source=file))
        saved = saved_config(self.folder) if resume else None
        self._saved = saved
        self.config = replace(
            base,
            data=with_absolute_paths(base.data),
            origin=_kept_origin(base, _origin(base, source)) if saved is None else saved.origin,
        )
        self.resume, self.fit, self.allow_changed_data = resume, fit, allow_changed_data
        self.data_dir = None if data_dir is None else as_path("data_dir", data_dir)
        self.quiet, self.json, self.log_samples = quiet, json, log_samples
        self.on_event, self.on_start = on_event, on_start
        self._stopping = False
        self._model: Model | None = None
        self._iterator: Generator[Event] | None = None

    def run(self) -> Model:
        """Train to the end, or until Ctrl-C, with progress; the model."""
        report = reporter(quiet=self.quiet, json=self.json)
        with StopOnInterrupt() as interrupt:
            code = self.execute(report, interrupt.exit_code)
        if code:
            report.say(
                f"note: stopped and saved; clearformer.train(out={str(self.folder)!r}, "
                f"resume=True) continues"
            )
        return self.model

    def __iter__(self) -> Iterator[Event]:
        """Train and yield the events."""
        self._iterator = self._events()
        return self._iterator

    def _events(self) -> Generator[Event]:
        with StopOnInterrupt() as interrupt:
            yield from self.events(Silent() if self.quiet else Notes(), interrupt.exit_code)

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        """End the iteration and release the run folder; nothing more is saved."""
        if self._iterator is not None:
            self._iterator.close()

    def stop(self) -> None:
        """Save and end the run at the next step; from an event's handler or another thread."""
        self._stopping = True

    @property
    def model(self) -> Model:
        """The saved model: its best or last checkpoint."""
        if self._model is None:
            from clearformer.model import load
            from clearformer.training.device import device_of

            self._model = load(self.folder, device=str(device_of(self.config.train.device)))
        return self._model

    def execute(
        self, report: Reporter, stop: Callable[[], int], group: ProcessGroup | None = None
    ) -> int:
        """Train with this reporter, in this process group; the exit code of the run."""
        from clearformer.training.events import Ended

        code = 0
        for event in self.events(report, stop, group):
            if isinstance(event, Ended):
                code = event.exit
        return code

    def events(
        self, report: Reporter, stop: Callable[[], int], group: ProcessGroup | None = None
    ) -> Iterator[Event]:
        """Train and yield the events, which are also given to `report` and `on_event`.

        The run ends at the next step once `stop` returns an exit code.
        """
        from clearformer.runs.memory_check import out_of_memory
        from clearformer.runs.resume import require_finite_end
        from clearformer.training.step import is_out_of_memory

        group = _single_process() if group is None else group
        self._stopping, self._model = False, None
        run, memory_error = None, ""
        with writable(self.folder):
            if group.restarts:
                require_finite_end(self.folder)
            group.on_main(self._write_data)
            with listening(as_lines(report.say), unless_set=True):
                config = self._fitted(group, report.say)
            try:
                with listening(as_lines(report.say), unless_set=True):
                    run = self._open(config, group, report.say)
                if self.on_start is not None and group.is_main:
                    self.on_start(run.model)
                report.start(run)
                with closing(self._logs(run, group, report.say)) as logs:
                    yield from self._reported(run, report, logs, stop)
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

    def _logs(self, run: Run, group: ProcessGroup, say: Callable[[str], None]) -> Logs:
        """The logs for other tools, which the main process writes."""
        names = self.log if group.is_main else ()
        step = run.state.step if run.resumed else 0
        return open_logs(names, self.folder, to_json(run.config), run.task.counted, step, say)

    def _reported(
        self, run: Run, report: Reporter, logs: Logs, stop: Callable[[], int]
    ) -> Iterator[Event]:
        from clearformer.training.events import Step

        for event in run.events(lambda: STOPPED if self._stopping else stop()):
            report.event(event)
            logs.event(event)
            if self.log_samples and isinstance(event, Step):
                report.samples(event.step, run.sample_ids(event.step))
            if self.on_event is not None:
                self.on_event(event)
            yield event

    def _fitted(self, group: ProcessGroup, say: Callable[[str], None]) -> RunConfig:
        """The config with what `fit` changes; planned by one rank, since memory use differs."""
        if self.fit is None:
            return self.config
        from clearformer.data import DataFolders
        from clearformer.plan.fit import fit_to_memory
        from clearformer.training import malloc

        limit, places = self.fit, DataFolders.from_environment(self.data_dir)
        malloc.limit_fragmentation()
        return run_from_json(
            group.on_main(
                lambda: to_json(fit_to_memory(self.config, limit, places, say, self._saved))
            )
        )

    def _open(self, config: RunConfig, group: ProcessGroup, say: Callable[[str], None]) -> Run:
        from clearformer.data import DataFolders
        from clearformer.runs import faults
        from clearformer.runs.run import Run

        return Run(
            config,
            self.folder,
            DataFolders.from_environment(self.data_dir),
            resume=self.resume,
            say=say,
            sample=lambda run, model: run.task.sample(model),
            group=group,
            faults=faults.parse(os.environ.get(faults.VARIABLE)),
            allow_changed_data=self.allow_changed_data,
        )

    def _write_data(self) -> None:
        """Write the data that was given in memory or piped in into the run folder, so that it can
        resume."""
        if self._rows is None and not self._from_stdin:
            return
        from clearformer import safe_files
        from clearformer.data import open_text

        path = self.folder / Path(self.config.data.source).name
        if self._rows is None:
            content = open_text(STDIN).read()
        else:
            content = self._rows.content(_columns(self.config), _reads_tables(self.config))
        if not path.exists() or not (self.folder / "checkpoints").exists():
            safe_files.replace(path, content)
        elif open_text(str(path)).read() != content:
            raise ValueError(
                f"{path} holds other data than was given: give the same, or choose another out"
            )


# For help() and editors: the arguments of Training, with the result of `train`.
train.__signature__ = inspect.signature(Training).replace(  # type: ignore[attr-defined]
    return_annotation="Model"
)


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
    if records and records[-1].get("reason") == "finished":  # who stops a run does not wait for it
        run.baseline = run.task.baseline()
    if any(record["event"] == "step" for record in records):
        drawing = figures.curve(records, run.task.metric, run.config.model.name)
        safe_files.replace(run.folder / "loss.png", figures.png(drawing))
    safe_files.replace(run.folder / "README.md", card(run).encode())


def _base(
    preset: str | AnyModelConfig | None,
    config: RunConfig | str | os.PathLike[str] | None,
    source: Path | None,
    out: Path | None,
    resume: bool,
    table: bool,
) -> tuple[str, RunConfig]:
    """The name of the run, and the settings that keywords change."""
    if isinstance(config, str | os.PathLike):
        config = config_in_file(as_path("config", config))
    if config is not None:
        if not isinstance(config, RunConfig):
            raise ValueError(
                f"config is {config!r:.60}, but it must be a RunConfig or the path of a config.json"
            )
        return preset if isinstance(preset, str) else config.model.name, config
    if preset is None or isinstance(preset, str):
        return starting_config(preset, source, out, resume, table)
    from clearformer.config import ModelConfig

    if not isinstance(preset, ModelConfig):
        raise ValueError(f"preset is {preset!r:.60}, but it must be a name or a ModelConfig")
    from clearformer.families.recipes import recipe

    data, train = recipe(preset)
    return preset.name, RunConfig(model=preset, data=data, train=train)


def _origin(config: RunConfig, source: Path | None) -> Origin | None:
    if config.origin is not None or source is None:
        return config.origin
    from clearformer.runs import finetune

    return finetune.read_origin(source).origin


def _kept_origin(config: RunConfig, origin: Origin | None) -> Origin | None:
    """The model to start from; an adapter needs it always, from any folder."""
    if origin is None or config.train.adapter is None:
        return origin
    return replace(origin, folder=os.path.abspath(origin.folder))


def _single_process() -> ProcessGroup:
    from clearformer.distributed.process_group import SINGLE_PROCESS

    started = os.environ.get("WORLD_SIZE", "1")
    if started != "1":
        raise ValueError(
            f"torchrun has started {started} processes, but this call trains in one: use "
            f"torchrun --no-python clearformer train"
        )
    return SINGLE_PROCESS


def _in_memory(data: Data | None) -> tuple[InMemory | None, bool]:
    """The data that is in memory, and whether it or the file is a table."""
    if data is None:
        return None, False
    if isinstance(data, str | os.PathLike):
        as_path("data", data)
        return None, is_table(os.fspath(data))
    rows = in_memory_data(data)
    return rows, not rows.is_texts


def _reads_tables(config: RunConfig) -> bool:
    """Whether such a model learns from the columns of a table, not from one text."""
    return config.model.head.text_task is not None or "translate" in config.model.verbs


def _columns(config: RunConfig) -> tuple[str, str]:
    """The columns that such a model learns from."""
    data = config.data
    if "translate" in config.model.verbs:
        return data.source_column, data.target_column
    return data.text_column, data.label_column
