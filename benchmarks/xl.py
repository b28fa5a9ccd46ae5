"""Value of a memory: Transformer-XL compared with a plain generator of the same segment length.

    python benchmarks/xl.py --minutes 30 --seeds 3 [--segment 32 --memory 96] [--data enwik8]

Both have as many parameters (the plain one a wider hidden layer in place of the projections of
distance), the same optimizer, batch, segment length and minutes by the clock, in which XL takes
fewer steps; who is first changes with the seed. Both are measured in float32 on the first bytes
of the validation part, every byte but the first once. XL reads segments and remembers as much
as it did in training. The plain one has windows of the same length, side by side (each byte is
seen once, as by XL) and a quarter of a window apart (each is predicted from at least three
quarters of one, at four times the work). The gain is over the better of its two figures, so the
protocol favours the plain one; XL with a longer memory than trained is shown, and not counted.
"""

from __future__ import annotations

import argparse
import os
import statistics
from dataclasses import replace
from pathlib import Path

from clearformer import data
from clearformer.builder import outline
from clearformer.config import (
    AdamW,
    DataConfig,
    HiddenMemory,
    KVCache,
    Learned,
    ModelConfig,
    Muon,
    Optimizer,
    RunConfig,
    StableThenDecay,
    TrainConfig,
)
from clearformer.families import xl
from clearformer.runs.load import open_run
from clearformer.runs.run import Run
from clearformer.tasks.compression import compress, compress_segments
from clearformer.tasks.sources import beginning, texts


def remembering(given: argparse.Namespace) -> ModelConfig:
    """The preset, with segments and a memory as long as asked for."""
    model = xl(given.size)
    assert isinstance(model.cache, HiddenMemory)
    memory = HiddenMemory(length=given.memory or model.cache.length)
    return replace(model, length=given.segment or model.length, cache=memory)


def plain(model: ModelConfig) -> ModelConfig:
    """The same without distances and memory; its hidden layer makes up for the parameters."""
    assert isinstance(model.cache, HiddenMemory)
    return replace(
        model,
        name=f"plain-{model.name}",
        position=Learned(),
        cache=KVCache(),
        hidden=model.hidden + model.width // 2,
    )


def optimizer_of(name: str) -> tuple[Optimizer, float]:
    if name == "adamw":
        return AdamW(weight_decay=0.0), 1e-3
    return Muon(adam_learning_rate=3e-3, adam=AdamW(weight_decay=0.0)), 0.02


def train(
    model: ModelConfig, given: argparse.Namespace, seed: int, places: data.DataFolders
) -> Path:
    optimizer, lr = optimizer_of(given.optimizer)
    config = RunConfig(
        model=model,
        data=DataConfig(source=given.data),
        train=TrainConfig(
            learning_rate=lr,
            batch_size=given.batch,
            minutes=given.minutes,
            optimizer=optimizer,
            schedule=StableThenDecay(warmup=20, decay=0.5),
            seed=seed,
            evaluations=1,
            threads=given.threads,
            compile="off",
        ),
    )
    folder: Path = given.out / f"{model.name}-{seed}"
    for event in Run(config, folder, places, resume=True, say=lambda line: None).events():
        last = event
    seen = last.step * given.batch * model.length
    print(f"  {folder}: {last.step:,} steps, {seen:,} bytes", flush=True)
    return folder


def measure(folder: Path, given: argparse.Namespace, places: data.DataFolders) -> dict[str, float]:
    opened = open_run(folder)
    model = opened.config.model
    _, text = texts(opened.config.data, places, model.length)
    cache = (places.cache or Path(".")) / "tokens"
    tokens = data.prepare(beginning(text, given.most), opened.tokenizer, cache)
    if isinstance(model.cache, HiddenMemory):
        return {
            f"memory {memory}": compress_segments(
                opened.model, model, tokens, opened.tokenizer, memory=memory
            ).bits_per_byte
            for memory in (model.cache.length, 4 * model.cache.length)
        }
    return {
        name: compress(opened.model, tokens, opened.tokenizer, model.length, stride).bits_per_byte
        for name, stride in (("side by side", model.length), ("a quarter on", model.length // 4))
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--size", default="small")
    arguments.add_argument("--segment", type=int, help="bytes; none: as in the preset")
    arguments.add_argument("--memory", type=int, help="bytes; none: as in the preset")
    arguments.add_argument("--data", default="enwik8")
    arguments.add_argument("--minutes", type=float, default=30)
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--batch", type=int, default=16)
    arguments.add_argument("--optimizer", choices=("muon", "adamw"), default="muon")
    arguments.add_argument("--threads", type=int, default=None)
    arguments.add_argument("--most", type=int, default=2**17, help="bytes to measure on")
    arguments.add_argument("--out", type=Path, default=Path("runs/xl-gain"))
    given = arguments.parse_args()
    folder = os.environ.get("CLEARFORMER_DATA")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clearformer"
    places = data.DataFolders(Path(folder) if folder else None, cache)
    models = (remembering(given), plain(remembering(given)))
    for model in models:
        count = sum(parameter.numel() for parameter in outline(model).parameters())
        print(f"{model.name}: {count:,} parameters, segments of {model.length}")
    gains = []
    for seed in range(given.seeds):
        turns = models if seed % 2 == 0 else models[::-1]
        found = {m.name: measure(train(m, given, seed, places), given, places) for m in turns}
        for name, figures in found.items():
            line = ", ".join(f"{how} {value:.4f}" for how, value in figures.items())
            print(f"seed {seed}: {name}: {line}", flush=True)
        remembers, forgets = (list(found[model.name].values()) for model in models)
        gains.append(min(forgets) - remembers[0])
        print(f"seed {seed}: gain over the better plain figure {gains[-1]:.4f} bits per byte")
    spread = f" ± {statistics.stdev(gains):.4f}" if len(gains) > 1 else ""
    print(
        f"gain: {statistics.mean(gains):.4f}{spread} bits per byte over {len(gains)} seeds "
        f"(from {min(gains):.4f} to {max(gains):.4f}), after {given.minutes:g} minutes each"
    )


if __name__ == "__main__":
    main()
