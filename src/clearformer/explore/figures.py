"""Matplotlib figures of patterns, attention and training curves.

Text stays text in SVG and PDF files.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from torch import Tensor

from clearformer.core.patterns import Pattern
from clearformer.escape import escape_line

if TYPE_CHECKING:
    from clearformer.explore.trace import Trace

matplotlib.rcParams.update({"svg.fonttype": "none", "pdf.fonttype": 42})


def pattern(value: Pattern, length: int, title: str = "") -> Figure:
    """A pattern: a row for each query, dark where it attends."""
    figure = Figure(figsize=(4.2, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.imshow(value.density(length, min(length, 256)).numpy(), cmap="Blues", vmin=0, vmax=1)
    axes.set(xlabel="key", ylabel="query", title=_plain(title))
    return figure


def reach(table: Tensor, title: str = "") -> Figure:
    """The inputs that each output depends on (T, K); those before the segment are below zero."""
    length, keys = table.shape
    figure = Figure(figsize=(0.8 + 4.2 * keys / length, 4.6), layout="constrained")
    axes = figure.subplots()
    where = (length - keys - 0.5, length - 0.5, length - 0.5, -0.5)
    axes.imshow(table.float().numpy(), cmap="Blues", vmin=0, vmax=1, extent=where)
    axes.set(xlabel="input", ylabel="output", title=_plain(title))
    return figure


def ladder(stages: Sequence[tuple[str, Tensor]], tokens: Sequence[str], title: str = "") -> Figure:
    """Tables of scores and weights side by side, with the number in each cell."""
    size = len(tokens)
    width = 1.2 + len(stages) * max(2.4, 0.55 * size)
    figure = Figure(figsize=(width, 1.2 + 0.5 * size), layout="constrained")
    figure.suptitle(_plain(title))
    labels = [_plain(each) for each in tokens]
    columns = figure.subplots(1, len(stages), squeeze=False)[0]
    for axes, (name, table) in zip(columns, stages, strict=True):
        finite = table[table.isfinite()]
        low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
        # Weights have one colour scale from 0 to 1; that of scores is centred on zero.
        is_weights = low >= 0 and high <= 1
        bound = max(abs(low), abs(high), 1e-9)
        limits = (0.0, 1.0) if is_weights else (-bound, bound)
        _heat_map(axes, table, limits, "viridis" if is_weights else "RdBu_r")
        axes.set_title(name)
        _label_axes(axes, labels, labels)
        if size <= 12:
            _write_numbers(axes, table, limits, is_weights)
    return figure


def attention(trace: Trace, layer: int, head: int, part: str = "self") -> Figure:
    """The weights of one head of a trace, with the colours and limits of the page."""
    weights = trace.get("weights", layer, head, part)
    rows, columns = trace.tokens(part), trace.key_tokens(part)
    finite = weights[weights.isfinite()]
    low = min(float(finite.min()), 0.0) if len(finite) else 0.0
    high = float(finite.max()) if len(finite) else 1.0
    size = (2.4 + 0.22 * len(columns), 1.6 + 0.22 * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    image = _heat_map(axes, weights.cpu(), (low, high), "viridis")
    axes.set_xticks(range(len(columns)), map(_visible, columns), rotation=90, fontsize=7)
    axes.set_yticks(range(len(rows)), map(_visible, rows), fontsize=7)
    axes.set(xlabel="key", ylabel="query")
    title = f"{trace.model.name}, {part} layer {layer}, head {head}"
    axes.set_title(_plain(title), fontsize=9)
    figure.colorbar(image, ax=axes, shrink=0.8, label="weight")
    return figure


def alignment(
    weights: Tensor, rows: Sequence[str], columns: Sequence[str], title: str = ""
) -> Figure:
    """The weights of each target token (a row) over the source (the columns)."""
    size = (1.8 + 0.36 * len(columns), 1.6 + 0.3 * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    axes.imshow(weights.numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    _label_axes(axes, [_visible(each) for each in rows], [_visible(each) for each in columns])
    axes.set(xlabel="source", ylabel="target")
    axes.set_title(_plain(title if len(title) <= 60 else f"{title[:59]}…"), fontsize=9)
    return figure


def _heat_map(axes: Axes, table: Tensor, limits: tuple[float, float], colours: str) -> AxesImage:
    """Draw a table; infinities and NaN are grey."""
    finite = table.masked_fill(~table.isfinite(), float("nan"))
    colour_map = matplotlib.colormaps[colours].with_extremes(bad="0.85")
    return axes.imshow(finite.numpy(), cmap=colour_map, vmin=limits[0], vmax=limits[1])


def _label_axes(axes: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    slanted: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(range(len(columns)), columns, **slanted)
    axes.set_yticks(range(len(rows)), rows)


def _visible(piece: str) -> str:
    """A token as a label: with visible whitespace, and never set as a formula."""
    return _plain(piece.replace(" ", "·").replace("\n", "⏎"))


def _plain(text: str) -> str:
    """Untrusted text: dollar signs start no formula, and control characters are escaped."""
    return escape_line(text).replace("$", r"\$")


def _write_numbers(axes: Axes, table: Tensor, limits: tuple[float, float], light: bool) -> None:
    low, high = limits
    for i, row in enumerate(table.tolist()):
        for j, value in enumerate(row):
            share = (value - low) / (high - low)
            dark = share < 0.6 if light else not 0.15 < share < 0.85
            text = "−∞" if value == float("-inf") else f"{value:.2f}".replace("-", "−")
            colour = "white" if dark and text != "−∞" else "black"
            axes.text(j, i, text, ha="center", va="center", color=colour, fontsize=8)


def save(figure: Figure, path: Path) -> None:
    """Write a figure to a file; the suffix determines the format."""
    figure.savefig(path, dpi=150)


def png(figure: Figure) -> bytes:
    """A figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=150, format="png")
    return buffer.getvalue()


def curve(records: Sequence[Mapping[str, Any]], figure: str, title: str = "") -> Figure:
    """The loss of a run, raw and smoothed, and its validation figure; `records` are those of
    `clearformer.runs.metrics.read`."""
    steps = [r for r in records if r["event"] == "step"]
    points = [r for r in records if r["event"] == "evaluation"]
    losses = [float(r["train_loss"]) for r in steps]
    drawing = Figure(figsize=(7, 4), layout="constrained")
    axes = drawing.subplots()
    axes.plot([r["step"] for r in steps], losses, color="0.8", linewidth=0.8, label="training loss")
    axes.plot([r["step"] for r in steps], _smooth(losses), color="tab:blue", label="smoothed")
    if points:
        evaluation_steps, losses_at = (
            [r["step"] for r in points],
            [float(r["validation_loss"]) for r in points],
        )
        axes.plot(evaluation_steps, losses_at, "o", color="tab:red", label="validation loss")
        last, name = points[-1], figure.replace("_", " ")
        value = float(last[f"validation_{figure}"])
        axes.set_title(f"{_plain(title)}   validation {name} {value:.3f} at step {last['step']}")
    axes.set(xlabel="step", ylabel="loss (nats)")
    axes.legend()
    return drawing


def learning_curve(points: Sequence[tuple[float, float, float]], figure: str) -> Figure:
    """A validation figure by the percentage of the training data, with its standard error."""
    drawing = Figure(figsize=(6, 4), layout="constrained")
    axes = drawing.subplots()
    percent, values, errors = zip(*points, strict=True)
    axes.errorbar(percent, values, yerr=errors, marker="o", capsize=3)
    name = figure.replace("_", " ")
    axes.set(xlabel="training data (%)", ylabel=f"validation {name}", xlim=(0, 105))
    return drawing


def _smooth(values: Sequence[float], weight: float = 0.95) -> list[float]:
    """An exponential moving average that starts at the first value."""
    smoothed, total, norm = [], 0.0, 0.0
    for value in values:
        total, norm = weight * total + value, weight * norm + 1
        smoothed.append(total / norm)
    return smoothed
