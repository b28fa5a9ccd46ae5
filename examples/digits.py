"""Handwritten digits as sequences of 16 patches, read by attention; at least 97 % are right.

    python examples/digits.py

The data is scikit-learn's (1,797 pictures of 8 x 8 pixels). A picture is cut into patches of
2 x 2; each patch is projected to a vector, rows and columns have learned vectors of their own
(`Grid`), and a head pools what the stack gives. Layers see, in turn, the own row and the own
column of patches, then everything: sparse patterns of a picture as values.
"""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

from clearformer.builder import build
from clearformer.config import Classifier, Dropout, Full, Grid, ModelConfig, Row, Strided

SIDE, PATCH = 8, 2
ACROSS = SIDE // PATCH


def model_config() -> ModelConfig:
    return ModelConfig(
        name="digits", vocabulary=1, length=ACROSS**2, layers=3, width=64, heads=4, hidden=128,
        residual="pre", activation="gelu", position=Grid(columns=ACROSS),
        patterns=(Row(width=ACROSS), Strided(stride=ACROSS), Full()),
        head=Classifier(classes=10, pool="mean"), dropout=Dropout(hidden=0.1, residual=0.1),
        init="xavier",
    )  # fmt: skip


class Patches(nn.Module):
    """Replaces the token embedding: patches of a picture (B, T, P*P) become vectors."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(PATCH * PATCH, width)

    def forward(self, images: Tensor) -> Tensor:
        cut = images.unfold(1, PATCH, PATCH).unfold(2, PATCH, PATCH)  # (B, rows, columns, P, P)
        return self.project(cut.flatten(3).flatten(1, 2))  # (B, T, E)


def moved(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each picture shifted by up to a pixel, as augmentation for 1,400 pictures."""
    shifts = torch.randint(3, (len(images), 2), generator=generator).tolist()
    padded = F.pad(images, (1, 1, 1, 1), value=-1.0)
    pairs = zip(padded, shifts, strict=True)
    return torch.stack([one[y : y + SIDE, x : x + SIDE] for one, (y, x) in pairs])


def main(epochs: int = 60) -> float:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32) / 8 - 1  # (1797, 8, 8)
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=generator)
    train, test = order[:-360], order[-360:]
    model, patches = build(model_config()), Patches(model_config().width)
    parameters = [*model.parameters(), *patches.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=2e-3, weight_decay=0.05)
    steps = epochs * -(-len(train) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)

    def logits(some: Tensor) -> Tensor:
        embedding, places = model.embedding, torch.arange(ACROSS**2)
        positions = embedding.scheme.added(places, embedding.width, embedding.position)  # (T, E)
        x = patches(some) + positions  # (B, T, E)
        return model.head(model.stack(x))  # (B, 10)

    for epoch in range(epochs):
        model.train()
        for some in train[torch.randperm(len(train), generator=generator)].split(64):
            loss = F.cross_entropy(logits(moved(images[some], generator)), labels[some])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {loss.item():.3f}", flush=True)
    model.eval()
    with torch.no_grad():
        right = (logits(images[test]).argmax(dim=1) == labels[test]).float().mean().item()
    print(f"right on {right:.1%} of {len(test)} pictures that were held back (wanted: 97 %)")
    return right


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=60)
    main(**vars(parser.parse_args()))
