"""Figures of the book: colours that are readable on a light and on a dark page."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
from cycler import cycler
from matplotlib.axes import Axes
from torch import Tensor

# Each is readable on white and on the dark page of the documentation: tests/learn/test_figures.py.
TEXT = "#7b7b7b"
COLOURS = ("#3d7fd0", "#d1602f", "#2f9160", "#a268c8")


def use_style() -> None:
    """Draw the figures of this process in the book's style."""
    matplotlib.rcParams.update(
        {
            "figure.facecolor": "none",
            "axes.facecolor": "none",
            "savefig.facecolor": "none",
            "savefig.transparent": True,
            "figure.dpi": 110,
            "figure.constrained_layout.use": True,
            "text.color": TEXT,
            "axes.labelcolor": TEXT,
            "axes.edgecolor": TEXT,
            "axes.titlecolor": TEXT,
            "xtick.color": TEXT,
            "ytick.color": TEXT,
            "legend.frameon": False,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "lines.linewidth": 2.0,
            "font.size": 11,
            "axes.prop_cycle": cycler(color=COLOURS),
        }
    )


def table(axes: Axes, values: Tensor, rows: Sequence[str], columns: Sequence[str]) -> None:
    """A table of numbers, shaded, with the number in each cell."""
    shown = values.detach().double()
    low, high = float(shown.min()), float(shown.max())
    axes.imshow(shown.numpy(), cmap="viridis", vmin=low, vmax=high, aspect="auto")
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    for i, row in enumerate(shown.tolist()):
        for j, value in enumerate(row):
            # viridis is dark at its lower end
            ink = "black" if value > low + 0.55 * (high - low) else "white"
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", color=ink)
