"""`clearformer plan gpt2-small --memory 12GB`: what a run needs, before it runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import tyro

from clearformer.cli import train as train_verb
from clearformer.cli.output import say, write_json
from clearformer.config import (
    RunConfig,
    TrainConfig,
)
from clearformer.config.settings import at
from clearformer.config.settings import spelled as name

# Larger values are not realistic, and would overflow the arithmetic.
MOST = {
    "gpus": 10**6,
    "gpu-tflops": 10**6,
    "utilisation": 1,
    "tokens": 10**18,
}
LEAST = {"gpus": 1, "gpu-tflops": 0.001, "utilisation": 0.01, "tokens": 1}


@dataclass(frozen=True)
class Plan(train_verb.RunSettings):
    """Parameters, memory, work and time of a run, and the settings with which it fits."""

    preset: tyro.conf.Positional[str]
    """A preset, a run, or a config.json; flags change it as they do in train."""
    memory: str | None = None
    """Memory limit, such as 12GB; none: the available memory of this machine."""
    gpus: int | None = None
    """Estimate for this many GPUs, instead of this machine."""
    gpu_memory: str = "80GB"
    """Memory of each GPU."""
    gpu_tflops: float = 312.0
    """Operations a second of each GPU in bfloat16, in 10^12; 312 is an A100, 989 an H100."""
    utilisation: float = 0.4
    """The share of these operations that training reaches."""
    tokens: float | None = None
    """With --gpus: number of training tokens; none: 20 for each parameter."""
    data_dir: Path | None = None
    """Folder with corpora; none: CLEARFORMER_DATA, then the cache."""
    json: bool = False
    """Print the figures as one line of JSON."""

    def run(self) -> None:
        self._require()
        config = self.config
        if self.gpus is not None:
            self._on_gpus(config, self.gpus)
            return
        from clearformer.cli.plan_report import memory_lines, work_lines
        from clearformer.plan import data_sizes, planner
        from clearformer.plan.fit import FITS_EASILY, FITTED
        from clearformer.plan.summary import memory_figures, work
        from clearformer.training import malloc
        from clearformer.training.memory import available_bytes, format_bytes, parse_bytes

        places = train_verb.places(self.data_dir)
        notes: list[str] = []
        if not Path(self.preset).exists():  # a run has recorded its vocabulary
            config, notes = data_sizes.with_vocabulary(config, places)
        limit = available_bytes() if self.memory is None else parse_bytes(self.memory)
        if config.train.threads is not None:
            from clearformer.training.device import set_threads

            set_threads(config.train.threads)
        malloc.limit_fragmentation()  # as in the run that is planned
        largest, typical, more = data_sizes.pair_lengths(config, places)
        plan = planner.plan(config, limit, pair_lengths=largest)
        timed, unknown = data_sizes.at_typical_length(plan, typical, places)
        measured = work(timed, places)
        notes += more + unknown
        if limit is not None and plan.fits_fragmented(limit):
            notes.append(FITS_EASILY)
        shown_limit = None if limit is None else self.memory or format_bytes(limit).replace(" ", "")
        commands = self._command(plan.config.train, shown_limit)
        if self.json:
            memory = {**memory_figures(plan), "limit": limit}
            figures = {"parameters": plan.counted.parameters, "memory": memory}
            train = {name: getattr(plan.config.train, name) for name in FITTED}
            command = {**train, "command": commands[-1], "notes": notes}
            write_json({"model": config.model.name, **figures, "work": asdict(measured), **command})
            return
        for line in (*memory_lines(plan, limit), *work_lines(timed, measured)):
            say(line)
        for note in notes:
            say(f"note: {note}")
        say()
        say("run it:")
        for line in commands:
            say(f"  {line}")

    def _command(self, train: TrainConfig, limit: str | None) -> list[str]:
        """The command that starts the planned run, after a note on settings without a flag."""
        from clearformer.cli.plan_command import command

        try:
            words, missing = command(self, train)
        except ValueError as problem:
            return [f"(no command starts this run: {problem})"]
        if limit is not None:
            words += ["--fit", limit]
        note = f"(no flag sets {', '.join(missing)}: there the run differs from the plan)"
        return [*([note] if missing else []), f"clearformer train {shlex.join(words)}"]

    def _on_gpus(self, config: RunConfig, gpus: int) -> None:
        from clearformer.cli.plan_report import gpu_estimates, gpu_lines
        from clearformer.plan.cluster import Gpu
        from clearformer.training.memory import parse_bytes

        gpu = Gpu(parse_bytes(self.gpu_memory), self.gpu_tflops, self.utilisation)
        if self.json:
            parameters, tokens, plans = gpu_estimates(config, gpus, gpu, self.tokens)
            figures = {"model": config.model.name, "parameters": parameters, "tokens": tokens}
            write_json({**figures, "gpus": gpus, "plans": [asdict(each) for each in plans]})
            return
        for line in gpu_lines(config, gpus, gpu, self.tokens):
            say(line)

    def _require(self) -> None:
        for place, most in MOST.items():
            value = at(self, place)
            if value is not None and value > most:
                raise ValueError(
                    f"--{place} is {value!r:.40}, but at most {most:,} can be planned: choose less"
                )
        for place, least in LEAST.items():
            value = at(self, place)
            if value is not None and not value >= least:
                raise ValueError(f"--{place} is {value}, but it must be at least {least:g}")
        if self.gpus is not None and self.memory is not None:
            raise ValueError(
                f"--memory {self.memory} is for this machine, but --gpus {self.gpus} estimates "
                f"others: set the memory of each GPU with --gpu-memory"
            )
        usual = {each.name: each.default for each in fields(self)}
        for field in ("gpu_memory", "gpu_tflops", "utilisation", "tokens"):
            if self.gpus is None and getattr(self, field) != usual[field]:
                instead = (
                    "; of a step of pairs it is --train.batch-tokens" if field == "tokens" else ""
                )
                raise ValueError(
                    f"--{name(field)} is {getattr(self, field)}, but it is used with --gpus only: "
                    f"add --gpus, or leave it out{instead}"
                )


def parse(arguments: Sequence[str]) -> Plan:
    """Parse the words of `clearformer plan` like those of `train`."""
    words = list(arguments)
    first = words[0] if words and not words[0].startswith("-") else None
    base = defaults(Path(first)) if first and Path(first).exists() else train_verb.defaults(words)
    default = Plan(
        preset=base.preset,
        model=base.model,
        data=base.data,
        train=base.train,
        generation=base.generation,
        task=base.task,
    )
    return train_verb.read(Plan, default, words, "clearformer plan")


def defaults(path: Path) -> train_verb.Train:
    """The settings of a run, of its config.json, or of a model's config."""
    from clearformer.config import model_and_generation_from_json, run_from_json
    from clearformer.families.recipes import recipe
    from clearformer.safe_json import read_json, read_run_json

    file = path / "config.json" if path.is_dir() else path
    found = read_run_json(file) if path.is_dir() else read_json(file)
    try:
        if isinstance(found, dict) and found.get("kind") == "RunConfig":
            run = run_from_json(found)
        else:
            model, generation = model_and_generation_from_json(found)
            data, train = recipe(model)
            run = RunConfig(model=model, data=data, train=train, generation=generation)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{file} is not a config of a run or a model: {problem}") from None
    return train_verb.from_config(str(path), run)
