"""`clearformer train gpt2-small --data my.txt --out runs/mine`: start or continue a run."""

from __future__ import annotations

import glob
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from clearformer import limits
from clearformer.config import DataConfig, ModelConfig, Origin, RunConfig, TrainConfig

if TYPE_CHECKING:
    from clearformer.data import Places
    from clearformer.train.run import Run

DEFAULT = "modern-tiny"
CLASSIFY = "classify"  # in the place of a preset: a new head on what --from names
SAMPLE = 120  # tokens of a sample at each evaluation
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
    data_dir: Path | None = None
    """Where corpora lie; none: CLEARFORMER_DATA, then the cache, then a download."""
    quiet: bool = False
    """Say only the result."""
    json: bool = False
    """Say every event as a line of JSON."""
    allow_changed_data: bool = False
    """Go on although the data is no longer what the run was trained with."""
    log: Log = Log()

    def run(self) -> None:
        from clearformer.train import faults
        from clearformer.train.lock import require_writable

        out = self.out or Path("runs") / f"{self.preset}-{Path(self.data.source).stem}"
        planned = faults.parse(os.environ.get(faults.VARIABLE))
        require_writable(out)  # before torch is imported: a mistake is said at once

        from clearformer.cli.progress import reporter
        from clearformer.train.ending import is_out_of_memory
        from clearformer.train.run import Ended, Run, Step
        from clearformer.train.step import NotFiniteError

        config = RunConfig(
            model=self.model,
            data=found_from_anywhere(self.data),
            train=self.train,
            origin=self._origin(out),
        )
        report = reporter(quiet=self.quiet, json=self.json)
        stopping = Stopping()
        run = Run(
            config,
            out,
            places(self.data_dir),
            resume=self.resume,
            say=report.say,
            sample=sample,
            faults=planned,
            allow_changed_data=self.allow_changed_data,
        )
        report.start(run)
        code = 0
        try:
            with stopping:
                for event in run.events(stopping.asked):
                    report.event(event)
                    if isinstance(event, Ended):
                        code = event.exit
                    if self.log.samples and isinstance(event, Step):
                        report.samples(event.step, run.sample_ids(event.step))
        except NotFiniteError as problem:
            report.close()
            print(f"clearformer: {problem}", file=sys.stderr)
            sys.exit(3)
        except RuntimeError as problem:
            if not is_out_of_memory(problem):
                raise
            raise ValueError(out_of_memory(self.train)) from None
        finally:
            report.close()
        picture(run)
        report.end(run)
        sys.exit(code)

    def _origin(self, out: Path) -> Origin | None:
        """What the run begins from; one that goes on knows it already."""
        saved = own_config(out) if self.resume else None
        if saved is not None:
            return saved.origin
        if self.from_ is None:
            return None
        from clearformer.train import origin

        return origin.read(self.from_).origin


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


def out_of_memory(train: TrainConfig) -> str:
    """What to change when a step does not fit, with the numbers of this run."""
    parts = train.accumulate
    while parts < train.batch and (parts == train.accumulate or train.batch % parts):
        parts += 1
    smaller = f"--accumulate {parts} (the same gradient in {parts} parts)"
    return (
        f"out of memory with {train.batch // train.accumulate} sequences at a time: use "
        f"{smaller if parts > train.accumulate else 'a shorter --length'}, a smaller --batch, "
        f"or a smaller model; what was saved is kept"
    )


def sample(run: Run) -> str | None:
    """A few words of a generator in training, a translation; nothing of a classifier."""
    from clearformer.config import NextToken
    from clearformer.core.model import Seq2Seq, Transformer
    from clearformer.generate.choose import Sampling
    from clearformer.generate.stream import stream
    from clearformer.generate.writer import Writer
    from clearformer.train.pairs import Translation

    if isinstance(run.task, Translation):
        assert isinstance(run.model, Seq2Seq)
        return run.task.sample(run.model)
    if not isinstance(run.config.model.head, NextToken):
        return None
    assert isinstance(run.model, Transformer)
    writer = Writer(run.model, run.config.model, run.task.tokenizer)
    drawn = stream(writer, "\n", Sampling(temperature=0.5), most=SAMPLE, seed=0)
    return "".join(token.text for token in drawn)


def picture(run: Run) -> None:
    """The run's curve and its card, beside the checkpoints."""
    from clearformer.explore import figures
    from clearformer.train.card import card
    from clearformer.train.records import read

    records = read(run.folder / "metrics.jsonl")
    if any("event" not in record for record in records):
        drawing = figures.curve(records, run.task.figure, run.config.model.name)
        figures.save(drawing, run.folder / "loss.png")
    (run.folder / "README.md").write_text(card(run), encoding="utf-8")


class Stopping:
    """Ctrl-C and SIGTERM end a run at the next step; a second one ends it now."""

    def __init__(self) -> None:
        self.code = 0

    def __enter__(self) -> Stopping:
        self.before = {s: signal.signal(s, self._ask) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *problem: object) -> None:
        for which, handler in self.before.items():
            signal.signal(which, handler)

    def asked(self) -> int:
        """The code to leave with at the next step; 0 as long as nobody asked."""
        return self.code

    def _ask(self, which: int, frame: object) -> None:
        if self.code:
            os._exit(128 + which)
        self.code = 128 + which


def places(folder: Path | None) -> Places:
    """Where to look for corpora: the flag, the environment, the user's cache."""
    from clearformer.data import Places

    given = os.environ.get("CLEARFORMER_DATA")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clearformer"
    return Places(folder or (Path(given) if given else None), cache)


def parse(arguments: Sequence[str]) -> Train:
    """Read `clearformer train`'s words: the preset gives the defaults, flags change them.

    A flag may be written by its last word alone (`--minutes` for `--train.minutes`) where only
    one field has it.
    """
    words = list(arguments)
    default = defaults(words)
    words = [expand(word, default) for word in words]
    budget = next((b for b in BUDGETS if any(w.startswith(f"--train.{b}") for w in words)), None)
    if budget is not None:
        empty = dict.fromkeys(BUDGETS) | {budget: 1}
        default = replace(default, train=replace(default.train, **empty))  # type: ignore[arg-type]
    return tyro.cli(
        Train,
        prog="clearformer train",
        default=default,
        args=words,
        config=(tyro.conf.AvoidSubcommands,),
    )


def defaults(words: Sequence[str]) -> Train:
    """What the flags change: the run that goes on, the one to begin from, or a preset."""
    from clearformer.families import preset
    from clearformer.families.recipes import recipe

    name = words[0] if words and not words[0].startswith("-") else None
    source, out = (_value(words, flag) for flag in ("--from", "--out"))
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
    from clearformer.config import Classifier, Features, NextToken, Pretraining
    from clearformer.families.recipes import going_on
    from clearformer.train import origin

    if name not in (None, CLASSIFY):
        raise ValueError(
            f"with --from the model is that of {source}: leave out {name!r}, or say classify"
        )
    found = origin.read(source)
    model = found.config.model
    if name == CLASSIFY and not isinstance(model.head, Classifier):
        # BERT learned what its pooled first token is for; behind a generator's first token
        # there is nothing yet.
        pools = {Pretraining: "pooler", NextToken: "mean"}
        own = model.head.pool if isinstance(model.head, Features) else "first"
        pool: Any = pools.get(type(model.head), own)
        model = replace(model, head=Classifier(pool=pool))
    data, train = going_on(model, found.tokenizer.kind, found.tokenizer.size)
    return Train(preset=name or model.name, model=model, data=data, train=train)


def own_config(folder: Path) -> RunConfig | None:
    """The config that the run in this folder wrote down, if there is one."""
    import json

    from clearformer.config import run_from_json

    path = folder / "config.json"
    if not path.is_file():
        return None
    try:
        if path.stat().st_size > limits.LARGEST_JSON:
            raise ValueError(f"it has more than {limits.LARGEST_JSON:,} bytes (LARGEST_JSON)")
        return run_from_json(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{path} cannot be read: {problem}") from None


def _value(words: Sequence[str], flag: str) -> str | None:
    """What follows a flag, in either of the two ways to write it."""
    for word, following in zip_longest(words, words[1:]):
        if word == flag:
            return following
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def expand(word: str, default: Train) -> str:
    """`--minutes` to `--train.minutes`, and `--data` to `--data.source`."""
    if not word.startswith("--"):
        return word
    flag, equals, value = word[2:].partition("=")
    flag = {"data": "data.source"}.get(flag, flag)
    own = {field.name.strip("_").replace("_", "-") for field in fields(default)}
    if "." not in flag and flag not in own:
        paths = [path for path in _paths(default) if path.rpartition(".")[2] == flag]
        shortest = [p for p in paths if p.count(".") == min(q.count(".") for q in paths)]
        if len(shortest) == 1:
            flag = shortest[0]
    return f"--{flag}{equals}{value}"


def _paths(value: Any, path: str = "") -> list[str]:
    found = []
    for field in fields(value):
        inner = getattr(value, field.name)
        name = f"{path}{field.name.replace('_', '-')}"
        if is_dataclass(inner):
            found += _paths(inner, f"{name}.")
        else:
            found.append(name)
    return found
