"""Bidirectional against causal classifiers of IMDb, and how their outputs are pooled.

    CLEARFORMER_DATA=... python benchmarks/imdb_masks.py [--seeds 3] [--steps 600]

A small model of the first seed's design (2 post-norm blocks of width 64, the first 128 words of a
review), equal steps for each variant, the better of two learning rates by reviews that were held
back. Accuracy is on the 12,500 test reviews at hand, half of the official test part.
"""

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from contest import data_places
from torch import Tensor, nn

from clearformer import data
from clearformer.builder import build
from clearformer.config import Causal, Classifier, Full, Pattern
from clearformer.families import preset

LENGTH, VOCABULARY, BATCH, HELD_BACK = 128, 20_000, 32, 1_000
VARIANTS: dict[str, tuple[Pattern, Literal["mean", "max", "last"]]] = {
    "looks both ways, mean": (Full(), "mean"),
    "looks both ways, max": (Full(), "max"),
    "causal, mean": (Causal(), "mean"),
    "causal, last": (Causal(), "last"),
}


@dataclass(frozen=True)
class Reviews:
    tokens: Tensor  # (N, T), 0 = padding
    labels: Tensor  # (N,)

    def __getitem__(self, rows: Tensor | slice) -> "Reviews":
        return Reviews(self.tokens[rows], self.labels[rows])

    def __len__(self) -> int:
        return len(self.labels)


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+|[0-9]+", text.lower().replace("<br />", " "))


def read(name: str) -> tuple[list[list[str]], Sequence[object]]:
    corpus = data.corpus("imdb")
    assert isinstance(corpus, data.LabelledCorpus)
    table = corpus.read(name, data_places())
    assert table.labels is not None
    return [words(text)[:LENGTH] for text in table.texts], table.labels


def encoded(
    texts: list[list[str]], labels: Sequence[object], numbers: dict[str, int], names: list[object]
) -> Reviews:
    tokens = torch.zeros(len(texts), LENGTH, dtype=torch.long)
    for row, text in enumerate(texts):
        known = [numbers.get(word, 1) for word in text] or [1]
        tokens[row, : len(known)] = torch.tensor(known)
    return Reviews(tokens, torch.tensor([names.index(each) for each in labels]))


def reviews() -> tuple[Reviews, Reviews]:
    """Training and test reviews; numbers of words are those of the training part."""
    (texts, labels), (test_texts, test_labels) = read("train"), read("test")
    counted = Counter(word for text in texts for word in text).most_common(VOCABULARY - 2)
    numbers = {word: place for place, (word, _) in enumerate(counted, 2)}
    names = sorted(set(labels), key=str)
    training = encoded(texts, labels, numbers, names)
    order = torch.randperm(len(training), generator=torch.Generator().manual_seed(0))
    return training[order], encoded(test_texts, test_labels, numbers, names)


def train(variant: str, training: Reviews, lr: float, seed: int, steps: int) -> nn.Module:
    pattern, pool = VARIANTS[variant]
    config = replace(
        preset("classifier-imdb"), vocabulary=VOCABULARY, length=LENGTH, layers=2, width=64,
        heads=4, hidden=256, patterns=(pattern,), head=Classifier(classes=2, pool=pool),
    )  # fmt: skip
    torch.manual_seed(seed)
    model = build(config, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    draw = torch.Generator().manual_seed(seed)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / 50, 2 * (1 - step / steps))
        batch = training[torch.randint(len(training), (BATCH,), generator=draw)]
        loss = F.cross_entropy(model(batch.tokens, batch.tokens > 0), batch.labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()


@torch.no_grad()
def accuracy(model: nn.Module, part: Reviews) -> float:
    right = 0
    for rows in torch.arange(len(part)).split(250):
        batch = part[rows]
        guesses = model(batch.tokens, batch.tokens > 0).argmax(dim=1)
        right += int((guesses == batch.labels).sum())
    return right / len(part)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=600)
    asked = parser.parse_args()
    training, test = reviews()
    held_back, rest = training[slice(HELD_BACK)], training[slice(HELD_BACK, None)]
    print("| | learning rate | accuracy, each seed |\n|---|---|---|", flush=True)
    for name in VARIANTS:
        tried = {
            lr: accuracy(train(name, rest, lr, 100, asked.steps), held_back) for lr in (1e-3, 3e-3)
        }
        best = max(tried, key=lambda lr: tried[lr])
        found = [
            accuracy(train(name, rest, best, seed, asked.steps), test)
            for seed in range(asked.seeds)
        ]
        print(f"| {name} | {best} | {', '.join(f'{each:.2%}' for each in found)} |", flush=True)


if __name__ == "__main__":
    main()
