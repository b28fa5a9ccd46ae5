"""Attention, an LSTM and convolutions on enwik8: equal parameters and equal CPU time, tuned alike.

    CLEARFORMER_DATA=... python benchmarks/architectures.py [--cpu-minutes 0.2]

Three small models of about 0.8 million parameters (a pre-norm transformer of GPT-2's design, two
layers of an LSTM, eight causal convolutions of kernel 4) are trained by the same engine, data,
optimizer, schedule, batch (8 windows of 256 bytes) and precision. CPU time is made equal by steps:
a few of each are timed first, and as many are trained as fit in, so that other work on the machine
does not matter. The learning rate is the better of two for each, found with seed 100 on the second
64 KB of the validation part; the result is the mean over three other seeds on its first 64 KB,
windows side by side. Finished runs are lines of benchmarks/results/architectures.jsonl, and are not
run again.
"""

import argparse
import json
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from contest import Contestant, Trained, data_places, step_seconds, train
from convolution import convolution
from enwik8 import NO_DROPOUT
from lstm import lstm

from clearformer import data
from clearformer.tasks.compression import compress

RESULTS = Path(__file__).parent / "results" / "architectures.jsonl"
COMMON = f"gpt2-small --data enwik8 --tokenizer bytes --length 256 {NO_DROPOUT} --batch-size 8"
CONTESTANTS = {
    "attention": Contestant(f"{COMMON} --layers 4 --width 128 --heads 4 --hidden 512"),
    "LSTM": Contestant(f"{COMMON} --layers 2 --width 224 --heads 4 --hidden 224", make=lstm),
    "convolution": Contestant(
        f"{COMMON} --layers 8 --width 156 --heads 4 --hidden 156", make=convolution
    ),
}
RATES, TUNING_SEED, SEEDS = (2e-3, 6e-3), 100, (0, 1, 2)
MEASURED = 2**16  # bytes

Record = dict[str, Any]


def read() -> list[Record]:
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    return [json.loads(line) for line in lines]


def bits_per_byte(trained: Trained, start: int) -> float:
    corpus = data.corpus("enwik8")
    assert isinstance(corpus, data.TextCorpus)
    held_back = corpus.read("validation", data_places()).part(start, start + MEASURED)
    tokenizer = trained.run.task.tokenizer
    tokens = data.prepare(held_back, tokenizer, trained.run.folder / "tokens")
    return compress(trained.model, tokens, tokenizer, context=256, stride=256).bits_per_byte


def measured(name: str, minutes: float, rate: float, seed: int) -> Record:
    """The record of one run: stored, or trained now."""
    key = {"name": name, "cpu_minutes": minutes, "rate": rate, "seed": seed}
    for record in read():
        if key.items() <= record.items():
            return record
    contestant, steps = CONTESTANTS[name], round(60 * minutes / step_times()[name])
    with tempfile.TemporaryDirectory() as folder:
        words = f"{contestant.words} --lr {rate} --evaluations 1 --steps {steps}"
        trained = train(name, replace(contestant, words=words), 0, seed, Path(folder))
        record = {
            **key,
            "parameters": trained.parameters,
            "steps": trained.steps,
            "bytes": trained.tokens,
            "bits_per_byte": bits_per_byte(trained, MEASURED if seed == TUNING_SEED else 0),
        }
    write(record)
    return record


def step_times() -> dict[str, float]:
    """CPU seconds of a step of each, timed in turns: the shorter of two rounds; stored, or now.

    Everyone's shorter round is the one that other work disturbed least.
    """
    for record in read():
        if "seconds" in record:
            return dict(record["seconds"])
    rounds: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            for name, contestant in CONTESTANTS.items():
                rounds[name].append(step_seconds(name, contestant, Path(folder)))
    seconds = {name: round(min(each), 5) for name, each in rounds.items()}
    write({"seconds": seconds, "rounds": rounds})
    return seconds


def write(record: Record) -> None:
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    print(json.dumps(record), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cpu-minutes", type=float, default=0.2)
    minutes = parser.parse_args().cpu_minutes
    torch.set_num_threads(1)
    best = {}
    for name in CONTESTANTS:
        tried = [measured(name, minutes, rate, TUNING_SEED) for rate in RATES]
        best[name] = min(tried, key=lambda record: record["bits_per_byte"])["rate"]
    runs: dict[str, list[Record]] = {name: [] for name in CONTESTANTS}
    for seed in SEEDS:
        for name in CONTESTANTS:
            runs[name].append(measured(name, minutes, best[name], seed))
    print("\n| | parameters | best rate | steps | bytes seen | bits per byte, 3 seeds |")
    print("|---|---|---|---|---|---|")
    for name, records in runs.items():
        first, bits = records[0], [record["bits_per_byte"] for record in records]
        print(
            f"| {name} | {first['parameters']:,} | {best[name]} | {first['steps']:,} | "
            f"{first['bytes']:,} | {statistics.mean(bits):.3f} ± {statistics.stdev(bits):.3f} |"
        )


if __name__ == "__main__":
    main()
