"""`clearformer train gpt2-small --data my.txt --out runs/mine`: start or continue a run."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from clearformer.cli.overrides import choose, expand, given, spelled
from clearformer.config import DataConfig, ModelConfig, Origin, RunConfig, TrainConfig

if TYPE_CHECKING:
    from clearformer.data import Places
    from clearformer.train.run import Run

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
    data_dir: Path | None = None
    """Where corpora lie; none: CLEARFORMER_DATA, then the cache, then a download."""
    quiet: bool = False
    """Say only the result."""
    json: bool = False
    """Say every event as a line of JSON."""

    def run(self) -> None:
        from clearformer.cli.progress import reporter
        from clearformer.train.diagnose import is_memory
        from clearformer.train.run import Run
        from clearformer.train.step import NotFiniteError

        out = self.out or Path("runs") / f"{self.preset}-{Path(self.data.source).stem}"
        config = RunConfig(
            model=self.model, data=self.data, train=self.train, origin=self._origin(out)
        )
        report = reporter(quiet=self.quiet, json=self.json)
        stopping = Stopping()
        run = Run(
            config, out, places(self.data_dir), resume=self.resume, say=report.say, sample=sample
        )
        report.start(run)
        full = False
        try:
            with stopping:
                for event in run.events(stopping.wanted):
                    report.event(event)
        except NotFiniteError as problem:
            report.close()
            print(f"clearformer: {problem}", file=sys.stderr)
            sys.exit(3)
        except RuntimeError as problem:
            if not is_memory(problem):
                raise
            full = True
        finally:
            report.close()
        if full:  # out of the handler, which keeps the step that did not fit alive
            raise ValueError(out_of_memory(self.train, run.fitting()))
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


def out_of_memory(train: TrainConfig, parts: int | None) -> str:
    """What to change when a step does not fit; in `parts` micro-batches it was found to fit."""
    if parts is None:
        fits = "not even one fits: use a shorter --length"
    else:
        fits = f"{train.batch // parts} fit: use --accumulate {parts} (the same gradient in parts)"
    return (
        f"out of memory with {train.batch // train.accumulate} sequences at a time, but {fits}, "
        f"a smaller --batch, or a smaller model; what was saved is kept"
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

    A flag may be written by the end of its path (`--minutes` for `--train.minutes`) where only
    one field has it; `--optimizer muon` chooses another kind of value.
    """
    words = list(arguments)
    default = defaults(words)
    before = default.train.optimizer
    words, default = choose(words, default)
    words = spelled([expand(word, default) for word in words], default)
    if type(default.train.optimizer) is not type(before) and given(words, "--train.lr") is None:
        raise ValueError(
            "another optimizer needs another learning rate: add --lr (usual are 0.02 for Muon and "
            "1e-3 for AdamW)"
        )
    budget = next((b for b in BUDGETS if any(w.startswith(f"--train.{b}") for w in words)), None)
    if budget is not None:
        empty = dict.fromkeys(BUDGETS) | {budget: 1}
        default = replace(default, train=replace(default.train, **empty))
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
