"""`clearformer train gpt2-small --data my.txt --out runs/mine`: start or continue a run."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import tyro

from clearformer.config import DataConfig, ModelConfig, Origin, RunConfig, TrainConfig

if TYPE_CHECKING:
    from clearformer.data import Places
    from clearformer.train.run import Run

V = TypeVar("V")
DEFAULT = "modern-tiny"
CLASSIFY = "classify"  # in the place of a preset: a new head on what --from names
SAMPLE = 120  # tokens of a sample at each evaluation
BUDGETS = ("steps", "epochs", "minutes")


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
    quiet: bool = False
    """Say only the result."""
    json: bool = False
    """Say every event as a line of JSON."""

    def run(self) -> None:
        from clearformer.cli.progress import reporter
        from clearformer.train.run import Run
        from clearformer.train.step import NotFiniteError

        out = self.out or Path("runs") / f"{self.preset}-{Path(self.data.source).stem}"
        config = RunConfig(
            model=self.model, data=self.data, train=self.train, origin=self._origin(out)
        )
        report = reporter(quiet=self.quiet, json=self.json)
        if self.fit is not None:
            saved = own_config(out) if self.resume else None
            config = fitted(config, self.fit, self.data_dir, report.say, saved)
        stopping = Stopping()
        try:
            run = Run(
                config,
                out,
                places(self.data_dir),
                resume=self.resume,
                say=report.say,
                sample=sample,
            )
            report.start(run)
            with stopping:
                for event in run.events(stopping.wanted):
                    report.event(event)
        except NotFiniteError as problem:
            report.close()
            print(f"clearformer: {problem}", file=sys.stderr)
            sys.exit(3)
        except (RuntimeError, MemoryError) as problem:
            wanted = str(problem)
            short = isinstance(problem, MemoryError) or "out of memory" in wanted
            if not short and "allocate" not in wanted:
                raise
            raise ValueError(out_of_memory(config, wanted)) from None
        finally:
            report.close()
        picture(run)
        report.end(run)
        sys.exit(stopping.code)

    def _origin(self, out: Path) -> Origin | None:
        """What the run begins from; one that goes on knows it already."""
        saved = own_config(out) if self.resume else None
        if saved is not None:
            return saved.origin
        if self.from_ is None:
            return None
        from clearformer.train import origin

        return origin.read(self.from_).origin


def fitted(
    config: RunConfig,
    limit: str,
    data_dir: Path | None,
    say: Callable[[str], None],
    saved: RunConfig | None = None,
) -> RunConfig:
    """The config with what makes it fit, as `clearformer plan --memory` finds it.

    A run that goes on was planned when it began, and stays as it is.
    """
    from clearformer.cli.plan import known
    from clearformer.train import plan, recompute, tidy

    bytes_allowed = plan.size(limit)
    tidy.keep_heap_small()
    if saved is not None:
        own = {
            name: getattr(saved.train, name) for name in ("accumulate", "recompute", "precision")
        }
        return replace(config, train=replace(config.train, **own))
    found = plan.plan(known(config, data_dir)[0], bytes_allowed)
    train = found.config.train
    say(
        f"note: to fit into {limit}, {train.accumulate} micro-batches a step, recomputing "
        f"{recompute.name(train.recompute)}, in {train.precision}: {plan.shown(found.total)}"
    )
    return replace(config, train=train)


def out_of_memory(config: RunConfig, problem: str) -> str:
    """What to change when a step does not fit, with the numbers of this run."""
    train, model = config.train, config.model
    found = re.search(r"allocate (\d+) bytes", problem)
    more = "" if found is None else f" ({int(found[1]) / 1e6:,.0f} MB more were asked for)"
    parts = [n for n in range(train.accumulate + 1, train.batch + 1) if train.batch % n == 0]
    ways = [
        f"--accumulate {parts[0]} (the same gradient in {parts[0]} parts)"
        if parts
        else f"a shorter --length than {model.length}",
        "--recompute 1 (every block twice, the same gradient)"
        if train.recompute != 1
        else "a smaller --width",
        f"fewer --layers than {model.layers}",
    ]
    return (
        f"out of memory{more} with {train.batch // train.accumulate} sequences of {model.length} "
        f"tokens at a time, {model.layers} layers of width {model.width}: use "
        f"{', or '.join(ways)}; clearformer plan tells before what fits, and what was saved is kept"
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

    def wanted(self) -> bool:
        return self.code != 0

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
    return read(Train, defaults(words), words, "clearformer train")


def read(verb: type[V], default: V, words: Sequence[str], program: str) -> V:
    """Words over a default, for every verb that takes a run's settings."""
    words = [expand(word, default) for word in words]
    budget = next((b for b in BUDGETS if any(w.startswith(f"--train.{b}") for w in words)), None)
    if budget is not None:
        empty = dict.fromkeys(BUDGETS) | {budget: 1}
        train = replace(default.train, **empty)  # type: ignore[attr-defined]
        default = replace(default, train=train)  # type: ignore[type-var]
    return tyro.cli(
        verb,
        prog=program,
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
        return run_from_json(json.loads(path.read_text()))
    except ValueError as problem:
        raise ValueError(f"{path} cannot be read: {problem}") from None


def _value(words: Sequence[str], flag: str) -> str | None:
    """What follows a flag, in either of the two ways to write it."""
    for word, following in zip_longest(words, words[1:]):
        if word == flag:
            return following
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def expand(word: str, default: Any) -> str:
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
