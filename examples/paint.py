"""Digits generated pixel by pixel, given only the class of the digit.

    python examples/paint.py

A sequence is the digit's class, then its 64 pixels line by line in 8 shades. A pixel sees the
class, its row and column so far (the Sparse Transformer's pattern), and the pixels around it.
"""

import argparse

import torch
import torch.nn.functional as F
from matplotlib.image import imsave
from sklearn.datasets import load_digits
from torch import Tensor

from clearformer import config as c
from clearformer.builder import build, caches

SIDE, SHADES, PIXELS = 8, 8, 64


def model_config() -> c.ModelConfig:
    pictures = c.Shifted(pattern=c.Row(width=SIDE) | c.Strided(stride=SIDE), by=1)
    title = c.Region(queries=(0, None), keys=(0, 1))  # everyone sees the class
    around = c.Local(window=2 * SIDE + 2)
    return c.ModelConfig(
        name="paint", vocabulary=SHADES + 10, length=PIXELS, layers=4, width=96, heads=4,
        hidden=192, residual="pre", activation="gelu", position=c.Learned(),
        patterns=(c.Causal() & (title | pictures), c.Causal() & (title | around)),
        head=c.NextToken(tied=False), cache=c.KVCache(), init="gpt2",
    )  # fmt: skip


def sequences() -> tuple[Tensor, Tensor]:
    """Class and pixels of each picture (N, 1 + 64), and the classes (N,)."""
    digits = load_digits()
    shades = (torch.tensor(digits.data) * (SHADES - 1) / 16).round().long()  # (N, 64)
    classes = torch.tensor(digits.target)
    return torch.cat((SHADES + classes[:, None], shades), dim=1), classes


@torch.inference_mode()
def paint(model: torch.nn.Module, classes: Tensor, generator: torch.Generator) -> Tensor:
    """A picture of each class, drawn pixel by pixel: (B, 64)."""
    memory = caches(model_config())
    token, drawn = SHADES + classes[:, None], []
    for _ in range(PIXELS):
        logits = model(token, caches=memory)[:, -1, :SHADES] / 0.7  # a little careful
        for cache in memory:
            cache.advance()
        token = torch.multinomial(logits.softmax(dim=-1), 1, generator=generator)
        drawn.append(token)
    return torch.cat(drawn, dim=1)


def show(pictures: Tensor) -> str:
    lines = pictures.view(-1, SIDE, SIDE).transpose(0, 1).flatten(1)  # side by side
    return "\n".join("".join(" .:-=+#@"[shade] * 2 for shade in line) for line in lines.tolist())


def main(epochs: int = 40) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    tokens, _ = sequences()
    model = build(model_config())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    steps = epochs * -(-len(tokens) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for epoch in range(epochs):
        for some in tokens[torch.randperm(len(tokens))].split(64):
            loss = F.cross_entropy(model(some[:, :-1]).flatten(0, 1), some[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        if epoch % 5 == 4:
            print(f"epoch {epoch + 1}: {loss.item() / 0.6931:.3f} bits per pixel", flush=True)
    classes = torch.arange(10).repeat(10)
    pictures = paint(model.eval(), classes, torch.Generator().manual_seed(1))
    for row in pictures[:10].split(5):
        print(show(row) + "\n")
    return pictures, classes


def recognised(pictures: Tensor, classes: Tensor) -> float:
    """The share of painted digits that a nearest-neighbour reader takes for their class."""
    tokens, known = sequences()
    near = known[torch.cdist(pictures.float(), tokens[:, 1:].float()).argmin(dim=1)]
    return (near == classes).float().mean().item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=40)
    pictures, digits = main(**vars(parser.parse_args()))
    share = recognised(pictures, digits)
    print(f"paint.png: a nearest-neighbour reader takes {share:.0%} of 100 for what they should be")
    sheet = F.pad(pictures.view(10, 10, SIDE, SIDE), (1, 1, 1, 1)).transpose(1, 2)  # (10, y, 10, x)
    imsave("paint.png", torch.kron(sheet.reshape(100, 100), torch.ones(6, 6)), cmap="gray_r")
