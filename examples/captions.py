"""A captioned picture as one sequence, its structure given by the pattern, in both directions.

    python examples/captions.py

A sequence is a word ("seven") and 8 x 8 pixels in 4 shades. The pattern: letters see
earlier letters; a pixel sees the whole caption, its row so far and its column so far. Put
the picture first instead, and the same model reads: letters see every pixel.
"""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor

from clearformer import config as c
from clearformer.builder import build, caches

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
LETTERS, SIDE, SHADES = 6, 8, 4  # a caption has 5 letters at most, and a place for its end
PIXELS, END = SIDE * SIDE, SHADES + 26


def structure(caption: int, picture: int) -> c.Pattern:
    """The pattern for a caption and a picture that begin at these positions."""
    letters, pixels = (caption, caption + LETTERS), (picture, picture + PIXELS)
    grid = c.Row(width=SIDE) | c.Strided(stride=SIDE) | c.Local(window=SIDE + 2)
    inside = c.Region(queries=pixels, keys=pixels) & c.Shifted(pattern=grid, by=picture)
    of_letters = c.Region(queries=letters, keys=(0, None))
    of_pixels = c.Region(queries=pixels, keys=letters)
    first = c.Region(queries=(0, None), keys=(0, 1))
    return c.Causal() & (inside | of_letters | of_pixels | first)


def model_config(name: str) -> c.ModelConfig:
    pattern = {"paint": structure(0, LETTERS), "read": structure(PIXELS, 0)}[name]
    return c.ModelConfig(
        name=name, vocabulary=END + 1, length=LETTERS + PIXELS, layers=4, width=96, heads=4,
        hidden=192, residual="pre", activation="gelu", position=c.Learned(), patterns=(pattern,),
        head=c.NextToken(tied=False), cache=c.KVCache(), init="gpt2",
    )  # fmt: skip


def sequences(name: str) -> tuple[Tensor, Tensor]:
    """Caption and pixels of each digit in the order of the task (N, T), and the classes (N,)."""
    digits = load_digits()
    pixels = (torch.tensor(digits.data) * (SHADES - 1) / 16).round().long()  # (N, 64)
    ids = [[SHADES + ord(c) - ord("a") for c in word] for word in WORDS]
    captions = torch.tensor([word + [END] * (LETTERS - len(word)) for word in ids])
    classes = torch.tensor(digits.target)
    parts = (captions[classes], pixels)
    return torch.cat(parts if name == "paint" else parts[::-1], dim=1), classes


@torch.inference_mode()
def go_on(model: torch.nn.Module, name: str, start: Tensor, count: int) -> Tensor:
    """The most likely `count` tokens after `start` (B, T)."""
    memory, token, found = caches(model_config(name)), start, []
    for _ in range(count):
        token = model(token, caches=memory)[:, -1:].argmax(dim=-1)  # (B, 1)
        for cache in memory:
            cache.advance()
        found.append(token)
    return torch.cat(found, dim=1)


def main(name: str = "read", epochs: int = 20) -> float:
    torch.manual_seed(0)
    tokens, classes = sequences(name)
    train, test = torch.randperm(len(tokens)).tensor_split([len(tokens) - 300])
    model = build(model_config(name))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    steps = epochs * -(-len(train) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for _ in range(epochs):
        for some in tokens[train[torch.randperm(len(train))]].split(64):
            loss = F.cross_entropy(model(some[:, :-1]).flatten(0, 1), some[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    first, count = {"paint": (LETTERS, PIXELS), "read": (PIXELS, LETTERS)}[name]
    found = go_on(model.eval(), name, tokens[test, :first], count)
    if name == "read":
        right = (found == tokens[test, first:]).all(dim=1).float().mean().item()
        print(f"read {right:.1%} of 300 held-back pictures to the last letter (guessing: 10 %)")
        return right
    near = torch.cdist(found.float(), tokens[train, first:].float()).argmin(dim=1)
    right = (classes[train][near] == classes[test]).float().mean().item()
    print(f"{right:.0%} of ten words are painted so that the nearest digit is the one asked for")
    return right


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=("read", "paint"), nargs="?", default="read")
    parser.add_argument("--epochs", type=int, default=20)
    main(**vars(parser.parse_args()))
