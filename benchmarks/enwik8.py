"""Bits per byte on enwik8 in a fixed time: ours, GPT-2's shape, the post's, an LSTM, convolutions.

    CLEARFORMER_DATA=... python benchmarks/enwik8.py [--minutes 10] [--only modern,gpt2] [--seed 0]
        [--more="--batch-size 4 --lr 4e-3"]

Everyone has width 256, depth 12 (the LSTM and the convolutions: as many parameters), length 256 and
the same time, and is trained by the same engine in the same precision on the first 90 million
bytes; the baselines with the batch and learning rate that did best for them (docs/results.md; the
LSTM and the convolutions are not tuned). Measured in float32 on the first 256 KB of the validation
part, windows of 256 tokens side by side. "modern, a third" has a third of the time: it should be no
worse than the best baseline. All read bytes but those named "pairs": they read 4,096 byte pairs,
learned from the training part, so that a window holds more text.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from contest import Contestant, Trained, data_places, train
from convolution import convolution
from lstm import lstm

from clearformer import data
from clearformer.tasks.compression import compress
from clearformer.tasks.sources import beginning

MEASURED = 2**18  # bytes
SHAPE = "--layers 12 --width 256 --length 256"
NO_DROPOUT = "--model.dropout.embedding 0 --model.dropout.attention 0 --model.dropout.residual 0"

PAIRS = "--tokenizer bpe --data.vocabulary 4096"

CONTESTANTS = {
    "modern": Contestant("modern-small --data enwik8 --evaluations 2"),
    "modern, a third": Contestant("modern-small --data enwik8 --evaluations 2", share=1 / 3),
    "modern pairs": Contestant(f"modern-small --data enwik8 {PAIRS} --evaluations 2"),
    "gpt2": Contestant(
        f"gpt2-small --data enwik8 --tokenizer bytes {SHAPE} --heads 4 --hidden 1024 {NO_DROPOUT} "
        "--batch-size 4 --lr 1e-3 --evaluations 2"
    ),
    "seed": Contestant("generator-enwik8 --data enwik8 --batch-size 4 --lr 1e-3 --evaluations 2"),
    "lstm": Contestant(
        "gpt2-small --data enwik8 --tokenizer bytes --layers 2 --width 768 --heads 4 --hidden 1024 "
        f"--length 256 {NO_DROPOUT} --batch-size 8 --lr 2e-3 --evaluations 2",
        make=lstm,
    ),
    "lstm pairs": Contestant(
        f"gpt2-small --data enwik8 {PAIRS} --layers 2 --width 768 --heads 4 --hidden 1024 "
        f"--length 256 {NO_DROPOUT} --batch-size 8 --lr 2e-3 --evaluations 2",
        make=lstm,
    ),
    "convolution": Contestant(
        "gpt2-small --data enwik8 --tokenizer bytes --layers 12 --width 440 --heads 4 --hidden 440 "
        f"--length 256 {NO_DROPOUT} --batch-size 8 --lr 1e-3 --evaluations 2",
        make=convolution,
    ),
}


def bits_per_byte(trained: Trained) -> float:
    corpus = data.corpus("enwik8")
    assert isinstance(corpus, data.TextCorpus)
    held_back = beginning(corpus.read("validation", data_places()), MEASURED)
    tokenizer = trained.run.task.tokenizer
    tokens = data.prepare(held_back, tokenizer, trained.run.folder / "tokens")
    return compress(trained.model, tokens, tokenizer, context=256, stride=256).bits_per_byte


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", default=",".join(CONTESTANTS).replace(", a third", ""))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark-enwik8"))
    parser.add_argument("--more", default="", help="more words for the contestants, to tune them")
    asked = parser.parse_args()
    chosen = {n: c for n, c in CONTESTANTS.items() if n.split(",")[0] in asked.only.split(",")}
    print("| | parameters | minutes | steps | tokens seen | bits per byte |")
    print("|---|---|---|---|---|---|")
    found = {}
    for name, contestant in chosen.items():
        contestant = replace(contestant, words=f"{contestant.words} {asked.more}")
        trained = train(name.split(",")[0], contestant, asked.minutes, asked.seed, asked.out)
        found[name] = bits_per_byte(trained)
        minutes = asked.minutes * contestant.share
        print(
            f"| {name} | {trained.parameters:,} | {minutes:.1f} | {trained.steps:,} "
            f"| {trained.tokens:,} | {found[name]:.3f} |",
            flush=True,
        )
    baselines = [value for name, value in found.items() if not name.startswith("modern")]
    if baselines and "modern, a third" in found:
        lead = found["modern, a third"] - min(baselines)
        print(f"\nmodern in a third of the time, less the best baseline: {lead:+.3f} bits per byte")


if __name__ == "__main__":
    main()
