"""Effect of pretraining: a small BERT on IMDb, pretrained and from scratch, same fine-tuning.

    CLEARFORMER_DATA=... python benchmarks/imdb_pretraining.py --minutes 60 --out runs/imdb

Three runs with the command line's own defaults: `pretrained` finds hidden tokens in the 75,000
training reviews, labelled or not; `tuned` begins from it and learns the labels; `scratch` has the
same shape, the same tokenizer, the same head and the same fine-tuning budget, but begins from
drawn weights. Both classifiers are then measured on the test reviews. What is interrupted goes
on when it is started again.
"""

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from clearformer import data
from clearformer.builder import build
from clearformer.cli.train import parse, places
from clearformer.config import RunConfig, to_json
from clearformer.data import DataFolders
from clearformer.runs import checkpoint, finetune, state
from clearformer.runs.load import open_run
from clearformer.runs.progress import Plain
from clearformer.runs.run import Run
from clearformer.runs.start import saved_config
from clearformer.tasks.class_report import report
from clearformer.tasks.classification import predict


def train(
    words: Sequence[str], folder: Path, where: DataFolders, source: Path | None = None
) -> Path:
    """Run `clearformer train` with these arguments in this process."""
    read = parse(words)
    known = saved_config(folder)
    begins = known.origin if known else finetune.read_origin(source).origin if source else None
    config = RunConfig(model=read.model, data=read.data, train=read.train, origin=begins)
    shown = Plain()
    run = Run(config, folder, where, resume=True)
    shown.start(run)
    for event in run.events():
        shown.event(event)
    shown.end(run)
    return folder


def drawn_anew(pretrained: Path, folder: Path, seed: int) -> Path:
    """A checkpoint with the pretrained model's shape and tokenizer, and initial weights."""
    if not (folder / "step-0").exists():
        opened = open_run(pretrained)
        config = replace(opened.config, train=replace(opened.config.train, ema_decay=None))
        model = build(config.model, seed + 1)
        documents = {"config.json": to_json(config), "tokenizer.json": opened.tokenizer.to_json()}
        facts = {"tokenizer": opened.checkpoint.manifest["tokenizer"], "data": "none"}
        weights = {"model.safetensors": state.weights(model)}
        checkpoint.write(folder, 0, weights, documents, facts)
    return folder / "step-0"


def accuracy(folder: Path, part: str, where: DataFolders) -> tuple[float, int]:
    opened = open_run(folder)
    corpus = data.CORPORA["imdb"]
    assert isinstance(corpus, data.LabelledCorpus)
    names = opened.config.model.head.names
    assert names is not None
    rows = data.encode_rows(corpus.read(part, where), opened.tokenizer, names)
    found = report(predict(opened.model, rows, opened.config), torch.from_numpy(rows.labels), names)
    return found.accuracy, len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="bert-mini-masked")
    parser.add_argument("--length", default="256")
    parser.add_argument("--minutes", default="60", help="of pretraining")
    parser.add_argument("--epochs", default="3", help="of fine-tuning, for both")
    parser.add_argument("--lr", default="3e-4", help="of fine-tuning, for both")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/imdb"))
    parser.add_argument(
        "--pretrain", default="", help='more for pretraining: --pretrain="--batch-size 64"'
    )
    parser.add_argument("--tune", default="", help='more for fine-tuning: --tune="--pool mean"')
    given = parser.parse_args()
    where, out, seed = places(None), given.out, ["--seed", str(given.seed)]

    words = [given.preset, "--data", "imdb", "--length", given.length, "--minutes", given.minutes]
    pretrained = train([*words, *seed, *shlex.split(given.pretrain)], out / "pretrained", where)
    scratch = drawn_anew(pretrained, out / "drawn", given.seed)
    results = {}
    for name, source in (("scratch", scratch), ("tuned", pretrained)):
        words = ["classify", "--from", str(source), "--data", "imdb", "--epochs", given.epochs]
        words += ["--lr", given.lr, "--evaluations", "6", *seed, *shlex.split(given.tune)]
        folder = train(words, out / name, where, source)
        results[name], rows = accuracy(folder, "test", where)
    print(f"\n{given.preset}, {given.epochs} epochs of fine-tuning, {rows:,} test reviews")
    print(f"from scratch                         {results['scratch']:.2%}")
    print(f"after {given.minutes} minutes of pretraining    {results['tuned']:.2%}")
    print(
        f"difference in points                 {100 * (results['tuned'] - results['scratch']):+.2f}"
    )


if __name__ == "__main__":
    main()
