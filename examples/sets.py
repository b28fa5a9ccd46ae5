"""A transformer without positions is a function of sets: the order of the input has no effect.

    python examples/sets.py

The task is the most frequent of ten symbols in a bag of fifteen, ties broken by the larger. The
model sees a bag in some order; shuffling it must not change a single answer.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.builder import build
from clearformer.config import Classifier, Full, ModelConfig, NoPosition

SYMBOLS, SIZE = 10, 15


def model_config() -> ModelConfig:
    return ModelConfig(
        name="sets",
        vocabulary=SYMBOLS,
        length=SIZE,
        layers=2,
        width=64,
        heads=4,
        hidden=128,
        residual="pre",
        activation="gelu",
        position=NoPosition(),
        patterns=(Full(),),
        head=Classifier(classes=SYMBOLS, pool="mean"),
        init="normal",
    )


def bags(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Bags of symbols (B, T) and the most frequent symbol of each (B,)."""
    tokens = torch.randint(SYMBOLS, (count, SIZE), generator=generator)
    counts = F.one_hot(tokens, SYMBOLS).sum(dim=1)  # (B, symbols)
    # Symbol s adds less than one count, so it decides ties alone.
    return tokens, (counts * SYMBOLS + torch.arange(SYMBOLS)).argmax(dim=1)


def main(steps: int = 600) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    model = build(model_config())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=steps)
    for step in range(steps):
        tokens, answers = bags(64, generator)
        loss = F.cross_entropy(model(tokens), answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    model.eval()
    with torch.no_grad():
        tokens, answers = bags(2000, generator)
        logits = model(tokens)
        order = torch.randperm(SIZE, generator=generator)
        moved = (model(tokens[:, order]) - logits).abs().max().item()
    accuracy = (logits.argmax(dim=1) == answers).float().mean().item()
    print(f"right on {accuracy:.1%} of 2,000 new bags (guessing: {1 / SYMBOLS:.0%})")
    print(f"largest change of a logit when every bag is shuffled: {moved:.1e}")
    return {"accuracy": accuracy, "moved": moved}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    main(**vars(parser.parse_args()))
