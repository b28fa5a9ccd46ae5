"""`clearformer plan gpt2-small --memory 12GB`: what a run needs, before it runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from clearformer.cli import train as train_verb
from clearformer.cli.output import say
from clearformer.cli.overrides import at, kinds, name
from clearformer.config import (
    DataConfig,
    ModelConfig,
    RunConfig,
    TrainConfig,
)

if TYPE_CHECKING:
    from clearformer.plan.footprint import Sides
    from clearformer.plan.planner import Plan as Found

UNTIDIED = (
    "there is room to spare: without --fit a step takes less time, up to half of it in a small "
    "model, and memory up to twice what its tensors take"
)
TOLD_BY_DATA = ("--model.vocabulary", "--model.marks", "--model.sides", "--model.head.names")
BUDGETS = tuple(f"--train.{each}" for each in train_verb.BUDGETS)

# Beyond these nothing is there to plan, and arithmetic would end before the numbers do.
MOST = {
    "gpus": 10**6,
    "gpu-tflops": 10**6,
    "utilisation": 1,
    "tokens": 10**18,
}
LEAST = {"gpus": 1, "gpu-tflops": 0.001, "utilisation": 0.01, "tokens": 1}


@dataclass(frozen=True)
class Plan:
    """Parameters, memory, work and time of a run, and the settings with which it fits."""

    preset: tyro.conf.Positional[str]
    """A preset, a run, or a config.json; flags change it as they do in train."""
    model: ModelConfig
    data: DataConfig
    train: TrainConfig
    memory: str | None = None
    """What the run may take, such as 12GB; none: what this machine has left."""
    gpus: int | None = None
    """Plan for so many GPUs on paper, instead of this machine."""
    gpu_memory: str = "80GB"
    """Of each GPU."""
    gpu_tflops: float = 312.0
    """Operations a second of each GPU in bfloat16, in 10^12; 312 is an A100, 989 an H100."""
    utilisation: float = 0.4
    """The share of these that training reaches."""
    tokens: float | None = None
    """With --gpus: how many to learn from; none: 20 for each parameter."""
    data_dir: Path | None = None
    """Where corpora lie; none: CLEARFORMER_DATA, then the cache."""

    def run(self) -> None:
        self._require()
        config = RunConfig(model=self.model, data=self.data, train=self.train)
        if self.gpus is not None:
            for line in on_paper(config, self):
                say(line)
            return
        from clearformer.plan import planner
        from clearformer.train import malloc

        config, notes = known(config, self.data_dir, exact=Path(self.preset).exists())
        limit = planner.available_bytes() if self.memory is None else planner.size(self.memory)
        if config.train.threads is not None:
            from clearformer.train.device import set_threads

            set_threads(config.train.threads)
        # As the run will be: what it takes is then what its tensors take.
        malloc.keep_small()
        largest, usual_sides, more = known_sides(config, self.data_dir)
        found = planner.plan(config, limit, sides=largest)
        usual, unknown = at_usual_length(found, usual_sides, self.data_dir)
        for line in (*memory(found, limit), *work(usual, self.data_dir)):
            say(line)
        notes += more + unknown
        if limit is not None and found.fits_untidied(limit):
            notes.append(UNTIDIED)
        for note in notes:
            say(f"note: {note}")
        say()
        say("run it:")
        try:
            words, unsaid = command(self, found)
        except ValueError as problem:
            say(f"  (no command begins this run: {problem})")
            return
        if unsaid:
            say(f"  (no flag can say {', '.join(unsaid)}: there the run differs from the plan)")
        if limit is not None:
            words += ["--fit", self.memory or planner.shown(limit).replace(" ", "")]
        say(f"  clearformer train {shlex.join(words)}")

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
                f"--memory {self.memory} is for this machine, but --gpus {self.gpus} plans for "
                f"others on paper: say what each of them has with --gpu-memory"
            )
        usual = {each.name: each.default for each in fields(self)}
        for field in ("gpu_memory", "gpu_tflops", "utilisation", "tokens"):
            if self.gpus is None and getattr(self, field) != usual[field]:
                instead = "; of a step of pairs it is --train.tokens" if field == "tokens" else ""
                raise ValueError(
                    f"--{name(field)} is {getattr(self, field)}, but it counts with --gpus alone: "
                    f"add how many, or leave it out{instead}"
                )


def memory(found: Found, limit: int | None) -> list[str]:
    """By part, and the seed's arithmetic for the tables of scores (eq. 28)."""
    from clearformer.plan.planner import shown
    from clearformer.train import recompute

    model, counted, train = found.config.model, found.counted, found.config.train
    past = model.memory or 0
    table = 4 * found.rows * model.heads * model.length * (model.length + past)
    of = "" if limit is None else f" of {shown(limit)}"
    return [
        f"{model.name}: {counted.parameters:,} parameters",
        f"\nmemory, {found.rows} at a time, in {train.precision}, recomputing "
        f"{recompute.name(train.recompute)}",
        f"  weights           {shown(counted.weights):>10}",
        f"  gradients         {shown(counted.gradients):>10}",
        f"  optimizer         {shown(counted.optimizer):>10}",
        *([f"  average           {shown(counted.average):>10}"] if counted.average else []),
        f"  activations       {shown(counted.activations):>10}   (left by the forward pass: "
        f"{shown(counted.kept)})",
        f"  Python and torch  {shown(found.base):>10}",
        f"  in all            {shown(found.total):>10}{of}",
        f"  tables of scores  {shown(4 * table * model.layers):>10}   if they were kept: 4 × "
        f"{model.layers} layers × {shown(table)} ({model.length} × {model.length + past}, "
        f"{model.heads} heads)",
    ]


def work(found: Found, data_dir: Path | None) -> list[str]:
    """Operations, speed here, and how long it takes or how far it comes."""
    from clearformer.cli.progress import clock
    from clearformer.plan import planner, throughput

    config, counted = found.config, found.counted
    train = config.train
    sides = found.given.sides
    reached = throughput.measure(config, found.rows, train.recompute, counted, sides)
    seconds = reached.seconds(counted, train.accumulate)
    tokens = planner.micro_tokens(config, sides) * train.accumulate
    how = "the model itself" if reached.whole else "a part of it"
    lines = [
        "\nwork",
        f"  a step            {counted.operations * train.accumulate / 1e9:,.1f} GFLOP, "
        f"{tokens:,} tokens, {seconds:.3g} s",
        f"  speed here        {tokens / seconds:,.0f} tokens/s, {reached.rate / 1e9:,.0f} GFLOP/s "
        f"(measured on {how})",
    ]
    if train.minutes is not None:
        steps = int(60 * train.minutes / seconds)
        lines.append(
            f"  {train.minutes:g} minutes{'':>{10 - len(f'{train.minutes:g}')}} {steps:,} steps, "
            f"{steps * tokens:,} tokens, {steps * tokens / counted.parameters:.2g} for each "
            f"parameter"
        )
        if steps == 0:
            lines.append("  not even one step is done in that time: a smaller batch or model")
    else:
        steps = train.steps or epoch_steps(config, data_dir)
        lines.append(
            f"  to the end        {clock(steps * seconds)} for {steps:,} steps, evaluations "
            f"not counted"
        )
    return lines


def known_sides(config: RunConfig, data_dir: Path | None) -> tuple[Sides, Sides, list[str]]:
    """Tokens of a pair in the largest batch and in the usual one, as the data has them."""
    from clearformer.plan.footprint import ASSUMED
    from clearformer.tasks.registry import task_of

    try:
        known = task_of(config.model).sides(config, train_verb.places(data_dir))
        return *(known or (ASSUMED, ASSUMED)), []
    except (ValueError, OSError) as problem:
        source, target = ASSUMED
        return ASSUMED, ASSUMED, [f"pairs of {source} and {target} tokens are assumed: {problem}"]


def at_usual_length(
    found: Found, usual_sides: Sides, data_dir: Path | None
) -> tuple[Found, list[str]]:
    """The plan for the batches that most of the time goes into, where rows have their own
    lengths: memory is for the longest, time for the usual."""
    from clearformer.plan import footprint
    from clearformer.plan.planner import micro_rows
    from clearformer.tasks.registry import task_of

    config, train = found.config, found.config.train
    task = task_of(config.model)
    if not task.padded:
        return found, []
    try:
        length = task.usual_length(config, train_verb.places(data_dir))
    except (ValueError, OSError) as problem:
        return found, [f"times are for texts of {config.model.length} tokens: {problem}"]
    if length is not None:
        config = replace(config, model=replace(config.model, length=length))
    rows = micro_rows(config, usual_sides)
    counted = footprint.footprint(
        config, rows, train.recompute, accumulated=train.accumulate > 1, sides=usual_sides
    )
    given = replace(found.given, sides=usual_sides)
    return replace(found, config=config, counted=counted, given=given), []


def epoch_steps(config: RunConfig, data_dir: Path | None) -> int:
    """Steps of a budget in epochs: only the data itself can tell."""
    from clearformer.tasks import registry

    assert config.train.epochs is not None
    task = registry.load(config, train_verb.places(data_dir))
    return max(1, round(config.train.epochs * task.steps_per_epoch))


def known(
    config: RunConfig, data_dir: Path | None, exact: bool = False
) -> tuple[RunConfig, list[str]]:
    """The config with the vocabulary that its data will have, without reading all of it."""
    from clearformer.tasks import sources

    data = config.data
    notes: list[str] = []
    if exact:  # a run has written it down
        return config, notes
    vocabulary = config.model.vocabulary
    largest = sources.LARGEST_VOCABULARY.get(data.tokenizer)
    if data.tokenizer == "bytes":
        vocabulary = 256
    elif data.vocabulary is not None:
        vocabulary = data.vocabulary
    elif largest is not None:
        try:
            text, _ = sources.texts(data, train_verb.places(data_dir), config.model.length)
        except (ValueError, OSError) as problem:
            notes.append(f"a vocabulary of {vocabulary:,} is assumed: {problem}")
        else:
            suited = text.size // sources.BYTES_PER_TOKEN
            vocabulary = min(largest, max(sources.SMALLEST_VOCABULARY, suited))
    return replace(config, model=replace(config.model, vocabulary=vocabulary)), notes


def on_paper(config: RunConfig, asked: Plan) -> list[str]:
    """Many GPUs: memory of each, days, and where the limits are."""
    from clearformer.build import outline
    from clearformer.plan import cluster
    from clearformer.plan.planner import shown, size
    from clearformer.train import recompute

    gpu = cluster.Gpu(size(asked.gpu_memory), asked.gpu_tflops, asked.utilisation)
    parameters = sum(p.numel() for p in outline(config.model).parameters())
    tokens = cluster.TOKENS_PER_PARAMETER * parameters if asked.tokens is None else asked.tokens
    assert asked.gpus is not None
    lines = [
        f"{config.model.name}: {parameters:,} parameters, {tokens:.3g} tokens "
        f"({tokens / parameters:.3g} for each), on {asked.gpus} GPUs, on paper",
        f"assumed: {shown(gpu.memory)} and {gpu.teraflops:g} TFLOP/s each, of which training "
        f"reaches {gpu.utilisation:.0%}; bfloat16 with float32 weights",
    ]
    fits = False
    ways: tuple[Literal["ddp", "fsdp2"], ...] = ("ddp", "fsdp2")
    for distribute in ways:
        found = cluster.on_paper(config, asked.gpus, distribute, gpu, tokens)
        fits |= found.rows > 0
        way = {"ddp": "a copy on each (ddp)", "fsdp2": "shared out (fsdp2)"}[distribute]
        if not found.rows:
            lines.append(
                f"\n{way}: does not fit; each GPU would need "
                f"{shown(found.memory)} for one sequence with every block recomputed"
            )
            continue
        needed = found.traffic / found.step_seconds
        lines += [
            f"\n{way}, recomputing {recompute.name(found.recompute)}",
            f"  on each GPU       {shown(found.memory)}: weights, gradients and optimizer "
            f"{shown(found.states)}, activations {shown(found.activations)} "
            f"({found.rows} sequences), CUDA {shown(cluster.CONTEXT)}",
            f"  a step            {found.step_tokens:,} tokens, {found.step_seconds:.3g} s, "
            f"{shown(found.traffic)} sent by each GPU: hidden behind the work from "
            f"{shown(needed)}/s on",
            f"  in all            {tokens / found.step_tokens:,.0f} steps, {found.days:,.1f} days",
        ]
    if not fits:
        raise ValueError(
            f"{config.model.name} does not fit on {asked.gpus} GPUs of {shown(gpu.memory)}, "
            f"shared out or not: use more (--gpus {2 * asked.gpus}), larger ones (--gpu-memory), "
            f"or a shorter --model.length"
        )
    most = cluster.LARGEST_BATCH // config.model.length
    lines.append(
        f"\nlimits: a step of more than {cluster.LARGEST_BATCH:,} tokens is not planned, so "
        f"beyond {most:,} GPUs (one sequence each) more of them do not help without splitting "
        f"the model itself, which clearformer does not do"
    )
    return lines


def command(asked: Plan, found: Found) -> tuple[list[str], list[str]]:
    """The words with which `clearformer train` begins just this run, and what no word can say.

    A model that is no preset can be begun from alone; where that cannot be, a ValueError.
    """
    begin = beginning(asked)
    base = train_verb.defaults(begin)
    if "--from" in begin:
        from clearformer.runs.finetune import require_same_body

        require_same_body(base.model, asked.model, asked.preset)
    choices = kinds(base)
    words, unsaid = list(begin), []
    for part, own, usual in (
        ("--model", asked.model, base.model),
        ("--data", asked.data, base.data),
        ("--train", found.config.train, base.train),
    ):
        for place, flags in differences(part, own, usual, choices):
            words += flags
            unsaid += [] if flags else [place]
    if "--train.optimizer" in words and "--train.lr" not in words:
        words += ["--train.lr", str(asked.train.lr)]  # which another optimizer asks for
    if asked.data_dir is not None:
        words += ["--data-dir", str(asked.data_dir)]
    return words, unsaid


def beginning(asked: Plan) -> list[str]:
    """What `train` begins with: a preset, or what lies in a folder."""
    from clearformer.families import preset, presets

    path, own = Path(asked.preset), asked.model.name
    if not path.exists():
        return [asked.preset]
    if own in presets() and type(preset(own)) is type(asked.model):
        return [own]
    return ["--from", str(path if path.is_dir() else path.parent)]


def differences(
    path: str, own: Any, usual: Any, choices: Mapping[str, Any]
) -> Iterator[tuple[str, list[str]]]:
    """Every setting that is not as usual, and the words that say it; none: no words can.

    What the data tells by itself is left out. `choices` are the places whose kind can be chosen.
    """
    for field in fields(own):
        flag = f"{path}.{name(field.name)}"
        one, other = getattr(own, field.name), getattr(usual, field.name)
        if one == other or flag in TOLD_BY_DATA:
            continue
        if one is None and flag in BUDGETS:
            continue  # one budget takes the place of another
        if flag[2:] in choices and type(one) is not type(other):
            words, other = choice(flag, one)
            yield flag[2:], words
            if not words:
                continue
        if is_dataclass(one) and type(one) is type(other):
            yield from differences(flag, one, other, choices)
        elif _alike(one, other):
            for place, pair in enumerate(zip(one, other, strict=True)):
                yield from differences(f"{flag}.{place}", *pair, choices)
        elif one != other:
            yield flag[2:], setting(flag, one)


def choice(flag: str, value: Any) -> tuple[list[str], Any]:
    """Words that put a value of this kind in a place, and the value that they put there; none
    where it cannot be without a number that is not whole."""
    if value is None:
        return [flag, "none"], None
    needed = {
        each.name: getattr(value, each.name)
        for each in fields(value)
        if each.default is MISSING and each.default_factory is MISSING
    }
    if any(not 0 <= each < 2**53 or each != int(each) for each in needed.values()):
        return [], None
    kind = re.sub("(?<=[a-z])(?=[A-Z][a-z]{2})", "-", type(value).__name__).lower()
    words = [flag, kind]
    for field, each in needed.items():
        words += [f"{flag}.{name(field)}", str(int(each))]
    return words, type(value)(**needed)


def setting(flag: str, value: Any) -> list[str]:
    """A flag and what follows it; nothing where the parser would read something else."""
    if isinstance(value, bool):
        place, _, last = flag.rpartition(".")
        return [flag if value else f"{place}.no-{last}"]
    if isinstance(value, tuple):
        return [flag, *map(str, value)] if all(type(each) is int for each in value) else []
    if is_dataclass(value) or value == "None":
        return []
    if isinstance(value, str) and (value.startswith("-") or value.lower() == "none"):
        return [f"{flag}={value}"]
    return [flag, str(value)]


def _alike(one: Any, other: Any) -> bool:
    """Whether two rows of settings differ in numbers alone, which then have flags."""
    if not isinstance(one, tuple) or not isinstance(other, tuple) or len(one) != len(other):
        return False
    translation = zip(one, other, strict=True)
    return all(is_dataclass(a) and type(a) is type(b) for a, b in translation)


def parse(arguments: Sequence[str]) -> Plan:
    """Read `clearformer plan`'s words as `train` reads its own."""
    words = list(arguments)
    first = words[0] if words and not words[0].startswith("-") else None
    base = defaults(Path(first)) if first and Path(first).exists() else train_verb.defaults(words)
    default = Plan(preset=base.preset, model=base.model, data=base.data, train=base.train)
    return train_verb.read(Plan, default, words, "clearformer plan")


def defaults(path: Path) -> train_verb.Train:
    """What a run, its config.json, or the config of a model alone says."""
    from clearformer.config import model_from_json, run_from_json
    from clearformer.families.recipes import recipe
    from clearformer.safe_json import read_json, read_run_json

    file = path / "config.json" if path.is_dir() else path
    found = read_run_json(file) if path.is_dir() else read_json(file)
    try:
        if isinstance(found, dict) and found.get("kind") == "RunConfig":
            run = run_from_json(found)
            model, data, train = run.model, run.data, run.train
        else:
            model = model_from_json(found)
            data, train = recipe(model)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{file} is no config of a run or a model: {problem}") from None
    return train_verb.Train(preset=str(path), model=model, data=data, train=train)
