"""Draws docs/verify.png: outputs against inputs, in a correct model and in three wrong ones.

python docs/_ext/verify_picture.py
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from verify_models.mutants import FILL, SOFTMAX  # noqa: E402
from verify_models.sources import SOURCES  # noqa: E402

from clearformer.verification.dependence import dependence  # noqa: E402
from clearformer.verification.probe import Probe  # noqa: E402

TRIANGLE = "torch.tril(torch.ones(block_size, block_size))"
BANNER = "logits = self.head(self.ln_f(x))"
PANELS = {
    "correct": [],
    "future-leak": [(TRIANGLE, TRIANGLE[:-1] + ", diagonal=1)")],
    "future-leak-through-pooling": [(BANNER, BANNER.replace("(x)", "(x + 0.1 * x.mean(1, True))"))],
    "softmax-before-mask": [(FILL, ""), (SOFTMAX, SOFTMAX + " * self.bias[:T, :T]")],
}


def main() -> None:
    """One panel for each model."""
    figure, axes = plt.subplots(1, len(PANELS), figsize=(11, 3), layout="constrained")
    for axis, (name, edits) in zip(axes, PANELS.items(), strict=True):
        torch.manual_seed(0)
        table = dependence(Probe(SOURCES["gpt"].model(edits)), 12)
        axis.imshow(table.clamp(min=1e-4).log10(), cmap="Blues", vmin=-4, vmax=1)
        axis.plot([-0.5, 11.5], [-0.5, 11.5], color="black", linewidth=0.7)
        axis.set(title=name, xlabel="input changed", ylabel="output")
        axis.title.set_fontsize(9)
    figure.savefig(ROOT / "docs/verify.png", dpi=110)


if __name__ == "__main__":
    main()
