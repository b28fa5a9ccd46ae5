"""Can W_o be removed? Models with and without it, and wide, narrow and single heads.

    CLEARFORMER_DATA=... python benchmarks/output_projection.py     run what is missing
    python benchmarks/output_projection_page.py                     write docs/output-projection.md

The models are the first seed's (post-norm blocks, ReLU, torch's initial weights) with rotary
positions, in three sizes: with learned positions attention had hardly begun to work in so few steps
(docs/log.md). A run is 800 steps of AdamW on enwik8 and 300 on IMDb, at a constant rate after a
warm-up. Measured is the moving average of the weights, so that a run can be measured at any step.
The rate is the best of three or four, found on held-back data with another seed, for `with` and for
`without`; the others take that of their kind. Variants:

    with        heads that share the width, then W_o
    without     the same, merged heads as they are
    refilled    without W_o, its parameters given to the feed-forward layers
    one         one head, with W_o
    wide        each head as wide as the model, with W_o

Where the best rates of `with` and `without` differ, three seeds of both are also trained at the
rate of the other.

At equal steps each is measured after as many as `with`. At equal time it is measured after as many
as take the CPU time of all steps of `with`; times of a step are compared in turns, in one process.

Every finished run is a line of benchmarks/results/output_projection.jsonl, and is not run again.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearformer import data
from clearformer.builder import build
from clearformer.config import Classifier, ModelConfig, Rotary
from clearformer.core.model import Batch, Transformer
from clearformer.data.rows import RowBatch
from clearformer.data.tables import Table
from clearformer.families.classifier import classifier
from clearformer.families.generator import generator
from clearformer.text import registry
from clearformer.training.ema import EMA

RESULTS = Path(__file__).parent / "results" / "output_projection.jsonl"
SIZES = {"small": (2, 32, 2), "medium": (2, 64, 4), "large": (3, 96, 6)}  # layers, width, heads
SEEDS, TUNING_SEED = range(5), 100
CONTROL_SEEDS = range(3)  # of the runs at the other's learning rate
STEPS = {"enwik8": 800, "imdb": 300}
WARM_UP, LENGTH, ROWS = 40, 128, 8
RATES = {
    "enwik8": (2e-3, 4e-3, 8e-3, 1.6e-2),
    "imdb": (5e-4, 1e-3, 2e-3),  # higher ones made larger models fall apart (docs/log.md)
}
WORDS = 8_000  # vocabulary of IMDb
VARIANTS = ("with", "without", "refilled")
SHAPES = ("one", "wide")  # beside "with", in the medium size

Record = dict[str, Any]
Bytes = NDArray[np.uint8]
Starts = NDArray[np.int64]


# --- models --------------------------------------------------------------------------------


def shaped(config: ModelConfig, size: str) -> ModelConfig:
    layers, width, heads = SIZES[size]
    config = replace(config, layers=layers, width=width, heads=heads, hidden=4 * width)
    return replace(config, length=LENGTH, position=Rotary())


def variant(config: ModelConfig, name: str) -> ModelConfig:
    width = config.width
    match name:
        case "with":
            return config
        case "without":
            return replace(config, attention_output="none")
        case "refilled":
            # W_o and its bias have width² + width parameters, a hidden unit 2 width + 1.
            more = round((width**2 + width) / (2 * width + 1))
            return replace(config, attention_output="none", hidden=config.hidden + more)
        case "one":
            return replace(config, heads=1)
        case "wide":
            return replace(config, head_width=width)
    raise ValueError(name)


# --- data ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Corpus:
    """Batches to learn from, and batches to measure on, for tuning and at the end."""

    config: ModelConfig
    batch: Callable[[int, int], Batch]  # (seed, step)
    tuning: Sequence[Batch]
    final: Sequence[Batch]


def enwik8() -> Corpus:
    corpus = data.CORPORA["enwik8"]
    assert isinstance(corpus, data.TextCorpus)

    def part(name: str, size: int) -> Bytes:
        source = corpus.read(name, data.DataFolders.from_environment())
        return np.frombuffer(b"".join(source.part(0, size).chunks()), dtype=np.uint8)

    training, held_back = part("train", 20_000_000), part("validation", 2**17)

    def rows(content: Bytes, starts: Starts) -> Batch:
        windows = torch.from_numpy(
            content[starts[:, None] + np.arange(LENGTH + 1)].astype(np.int64)
        )
        return Batch(windows[:, :-1].contiguous(), windows[:, 1:].contiguous())

    def batch(seed: int, step: int) -> Batch:
        draw = np.random.default_rng((seed, step))
        return rows(training, draw.integers(len(training) - LENGTH, size=ROWS))

    starts = np.arange(0, 2**17 - LENGTH, LENGTH).reshape(-1, 1)
    batches = [rows(held_back, each.ravel()) for each in np.array_split(starts, 16)]
    return Corpus(generator(), batch, batches[8:], batches[:8])


def imdb() -> Corpus:
    def part(name: str) -> Table:
        corpus = data.CORPORA["imdb"]
        assert isinstance(corpus, data.LabelledCorpus)
        return corpus.read(name, data.DataFolders.from_environment())

    everything = part("train")
    training = everything.select([i for i in range(len(everything)) if i % 12])
    watched = everything.select(range(0, len(everything), 12))
    test = part("test")
    test = test.select(range(0, len(test), 5))
    tokenizer = registry.train("words", training.texts, WORDS)
    names = data.label_names(training)
    rows = data.encode_rows(training, tokenizer, names)
    batches: dict[int, data.RowBatches] = {}

    def torch_batch(found: RowBatch) -> Batch:
        return Batch(
            torch.from_numpy(found.tokens),
            torch.from_numpy(found.labels),
            torch.from_numpy(found.attention_mask),
        )

    def batch(seed: int, step: int) -> Batch:
        if seed not in batches:
            batches[seed] = data.RowBatches(rows, 2 * ROWS, seed, LENGTH)
        return torch_batch(batches[seed].batch(step))

    def measured(table: Table) -> list[Batch]:
        encoded = data.encode_rows(table, tokenizer, names)
        return [torch_batch(each) for each in data.evaluation_rows(encoded, 64, LENGTH)]

    config = replace(classifier(), vocabulary=tokenizer.size, head=Classifier(names=names))
    return Corpus(config, batch, measured(watched), measured(test))


CORPORA = {"enwik8": enwik8, "imdb": imdb}


# --- training ------------------------------------------------------------------------------


class Training:
    """A model, its optimizer and the average of its weights."""

    def __init__(self, corpus: Corpus, config: ModelConfig, rate: float, seed: int) -> None:
        self.corpus, self.rate, self.seed, self.step = corpus, rate, seed, 0
        model = build(config, seed)
        assert isinstance(model, Transformer)
        self.model = model
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), rate, betas=(0.9, 0.98), weight_decay=0.01, foreach=True
        )
        self.average = EMA(self.model, decay=0.98)

    def advance(self) -> None:
        """One step."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * min(1.0, (self.step + 1) / WARM_UP)
        total, count = self.model.loss(self.corpus.batch(self.seed, self.step))
        self.optimizer.zero_grad()
        (total / count).sum().backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.average.update(self.model, self.step)
        self.step += 1

    def measure(self, batches: Sequence[Batch]) -> dict[str, float]:
        """Mean loss in nats, and the share of right guesses."""
        self.model.eval()
        total = count = right = 0.0
        with torch.no_grad(), self.average.applied_to(self.model):
            for batch in batches:
                logits = self.model(batch.tokens, batch.attention_mask)
                assert isinstance(logits, Tensor)
                assert isinstance(batch.targets, Tensor)
                rows, targets = logits.flatten(0, -2), batch.targets.flatten()
                total += float(torch.nn.functional.cross_entropy(rows, targets, reduction="sum"))
                right += float((rows.argmax(-1) == targets).sum())
                count += len(targets)
        self.model.train()
        return {"loss": total / count, "accuracy": right / count}


def step_ratio(corpus: Corpus, config: ModelConfig, name: str, rounds: int = 40) -> float:
    """CPU time of a step of `with` by that of a variant: the median over steps taken in turns."""
    pair = [Training(corpus, variant(config, each), 1e-3, 0) for each in ("with", name)]
    ratios = []
    for number in range(rounds + 5):
        seconds = []
        for training in pair if number % 2 else reversed(pair):
            start = time.process_time()
            training.advance()
            seconds.append(time.process_time() - start)
        reference, own = seconds if number % 2 else reversed(seconds)
        ratios.append(reference / own)
    return statistics.median(ratios[5:])  # the first ones warm up


# --- what is run ---------------------------------------------------------------------------


def read() -> list[Record]:
    return (
        [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    )


def find(records: Sequence[Record], **wanted: object) -> Record | None:
    matches = (r for r in records if all(r.get(key) == value for key, value in wanted.items()))
    return next(matches, None)


def write(record: Record) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    print(json.dumps(record), flush=True)


def cells(seeds: Sequence[int]) -> Iterator[tuple[str, str, str, int]]:
    """Corpus, size, variant and seed of every run: all of one seed before the next, W_o first."""
    for seed in seeds:
        for corpus in CORPORA:
            for size in SIZES:
                yield from ((corpus, size, name, seed) for name in VARIANTS)
    for seed in seeds:
        for corpus in CORPORA:
            yield from ((corpus, "medium", name, seed) for name in SHAPES)


def rate(records: Sequence[Record], corpus: str, name: str) -> float | None:
    """The best of the rates that were tried; shapes of heads and `refilled` take their model's."""
    tuned = "without" if name in ("without", "refilled") else "with"
    tried = [
        r
        for r in records
        if r["kind"] == "rate" and r["corpus"] == corpus and r["variant"] == tuned
    ]
    if len(tried) < len(RATES[corpus]):
        return None
    return float(min(tried, key=lambda r: r["loss"])["rate"])


def tune(corpora: dict[str, Corpus]) -> None:
    for corpus in CORPORA:
        for name in ("with", "without"):
            for each in RATES[corpus]:
                key = {"kind": "rate", "corpus": corpus, "variant": name, "rate": each}
                if find(read(), **key) is None:
                    found = corpora[corpus]
                    config = variant(shaped(found.config, "medium"), name)
                    training = Training(found, config, each, TUNING_SEED)
                    for _ in range(STEPS[corpus]):
                        training.advance()
                    write({**key, **training.measure(found.tuning)})


def time_steps(corpora: dict[str, Corpus]) -> None:
    for corpus, size, name, _ in cells([0]):
        key = {"kind": "time", "corpus": corpus, "size": size, "variant": name}
        if name != "with" and find(read(), **key) is None:
            found = corpora[corpus]
            config = shaped(found.config, size)
            write({**key, "ratio": round(step_ratio(found, config, name), 3)})


def run(corpora: dict[str, Corpus], seeds: Sequence[int]) -> None:
    for corpus, size, name, seed in cells(seeds):
        key = {"kind": "run", "corpus": corpus, "size": size, "variant": name, "seed": seed}
        records = read()
        if find(records, **key) is not None:
            continue
        found = corpora[corpus]
        timed = find(records, kind="time", corpus=corpus, size=size, variant=name)
        equal_time = round(STEPS[corpus] * (float(timed["ratio"]) if timed else 1.0))
        chosen = rate(records, corpus, name)
        assert chosen is not None
        training = Training(found, variant(shaped(found.config, size), name), chosen, seed)
        measured: Record = {}
        start = time.process_time()
        for step in range(1, max(STEPS[corpus], equal_time) + 1):
            training.advance()
            for label, at in (("steps", STEPS[corpus]), ("time", equal_time)):
                if step == at:
                    measured[label] = {"step": at, **training.measure(found.final)}
        parameters = sum(each.numel() for each in training.model.parameters())
        seconds = round(time.process_time() - start, 1)
        write({**key, "rate": chosen, "parameters": parameters, **measured, "cpu_seconds": seconds})


def other_rates(records: Sequence[Record]) -> Iterator[Record]:
    """`with` at the rate of `without` and the reverse: does the rate make the difference?

    On enwik8, where the two rates differ.
    """
    rates = {name: rate(records, "enwik8", name) for name in ("with", "without")}
    if None in rates.values() or rates["with"] == rates["without"]:
        return
    for seed in CONTROL_SEEDS:
        for size in ("large", "small", "medium"):
            for name, other in (("with", "without"), ("without", "with")):
                key = {"kind": "other rate", "corpus": "enwik8", "size": size, "variant": name}
                yield {**key, "seed": seed, "rate": rates[other]}


def run_other_rates(corpora: dict[str, Corpus]) -> None:
    for key in other_rates(read()):
        if find(read(), **key) is None:
            found = corpora[key["corpus"]]
            config = variant(shaped(found.config, key["size"]), key["variant"])
            training = Training(found, config, key["rate"], key["seed"])
            for _ in range(STEPS[key["corpus"]]):
                training.advance()
            write({**key, **training.measure(found.final)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="*", default=list(SEEDS))
    parser.add_argument("--only-other-rates", action="store_true", help="the control alone")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    corpora = {name: make() for name, make in CORPORA.items()}
    time_steps(corpora)
    tune(corpora)
    if not asked.only_other_rates:
        run(corpora, asked.seeds)
    run_other_rates(corpora)


if __name__ == "__main__":
    main()
