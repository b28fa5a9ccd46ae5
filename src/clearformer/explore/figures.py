"""Pictures for papers and slides: matplotlib figures of patterns and of attention.

Text stays text in SVG and PDF; colours and limits come from the data.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.figure import Figure
from torch import Tensor

from clearformer.core.patterns import Pattern
from clearformer.escape import escape_line

if TYPE_CHECKING:
    from clearformer.explore.trace import Trace

matplotlib.rcParams.update({"svg.fonttype": "none", "pdf.fonttype": 42})


def pattern(value: Pattern, length: int, title: str = "") -> Figure:
    """Who may look at whom: a row for each query, dark where it may look."""
    figure = Figure(figsize=(4.2, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.imshow(value.density(length, min(length, 256)).numpy(), cmap="Blues", vmin=0, vmax=1)
    axes.set(xlabel="key", ylabel="query", title=_plain(title))
    return figure


def reach(table: Tensor, title: str = "") -> Figure:
    """Which inputs can change which outputs (T, K); inputs before the segment are below zero."""
    length, keys = table.shape
    figure = Figure(figsize=(0.8 + 4.2 * keys / length, 4.6), layout="constrained")
    axes = figure.subplots()
    where = (length - keys - 0.5, length - 0.5, length - 0.5, -0.5)
    axes.imshow(table.float().numpy(), cmap="Blues", vmin=0, vmax=1, extent=where)
    axes.set(xlabel="input", ylabel="output", title=_plain(title))
    return figure


def ladder(stages: Sequence[tuple[str, Tensor]], tokens: Sequence[str], title: str = "") -> Figure:
    """Tables of scores and weights side by side, each number written in its cell."""
    size = len(tokens)
    figure = Figure(figsize=(1.2 + len(stages) * max(2.4, 0.55 * size), 1.2 + 0.5 * size))
    figure.set_layout_engine("constrained")
    figure.suptitle(_plain(title))
    names = [_plain(each) for each in tokens]
    for axes, (name, table) in zip(
        figure.subplots(1, len(stages), squeeze=False)[0], stages, strict=True
    ):
        finite = table[table.isfinite()]
        low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
        # Weights lie between 0 and 1 on one scale of colour; scores are centred on zero.
        is_weights = low >= 0 and high <= 1
        bound = max(abs(low), abs(high), 1e-9)
        limits = (0.0, 1.0) if is_weights else (-bound, bound)
        colours = matplotlib.colormaps["viridis" if is_weights else "RdBu_r"].with_extremes(
            bad="0.85"
        )
        shown = table.masked_fill(~table.isfinite(), float("nan"))
        axes.imshow(shown.numpy(), cmap=colours, vmin=limits[0], vmax=limits[1])
        axes.set_title(name)
        axes.set_xticks(range(size), names, rotation=45, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(size), names)
        if size <= 12:
            _write_numbers(axes, table, limits, is_weights)
    return figure


def attention(trace: Trace, layer: int, head: int, part: str = "self") -> Figure:
    """The weights of one head of a trace, in the colours and between the limits of the page."""
    weights = trace.get("weights", layer, head, part)
    rows, columns = trace.tokens(part), trace.key_tokens(part)
    finite = weights[weights.isfinite()]
    low = min(float(finite.min()), 0.0) if len(finite) else 0.0
    high = float(finite.max()) if len(finite) else 1.0
    figure = Figure(figsize=(2.4 + 0.22 * len(columns), 1.6 + 0.22 * len(rows)))
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    colours = matplotlib.colormaps["viridis"].with_extremes(bad="0.85")
    shown = weights.masked_fill(~weights.isfinite(), float("nan")).cpu()
    picture = axes.imshow(shown.numpy(), cmap=colours, vmin=low, vmax=high)
    names = [_visible(each) for each in columns]
    axes.set_xticks(range(len(columns)), names, rotation=90, fontsize=7)
    axes.set_yticks(range(len(rows)), [_visible(each) for each in rows], fontsize=7)
    axes.set(xlabel="key", ylabel="query")
    title = f"{trace.subject.name}, {part} layer {layer}, head {head}"
    axes.set_title(_plain(title), fontsize=9)
    figure.colorbar(picture, ax=axes, shrink=0.8, label="weight")
    return figure


def heads(trace: Trace, part: str = "self") -> Figure:
    """Every head as a small picture: a row for each layer."""
    layers = [layer for own, layer in trace.recorded if own == part]
    count = trace.recorded[part, layers[0]]["weights"].shape[1]
    figure = Figure(figsize=(0.6 + 0.9 * count, 0.5 + 0.9 * len(layers)), layout="constrained")
    several = figure.subplots(len(layers), count, squeeze=False)
    for layer, row in zip(layers, several, strict=True):
        for head, axes in enumerate(row):
            table = trace.get("weights", layer, head, part).cpu()
            axes.imshow(table.numpy(), cmap="viridis", vmin=0)
            axes.set_xticks([])
            axes.set_yticks([])
            if head == 0:
                axes.set_ylabel(f"layer {layer}", fontsize=7)
            if layer == layers[0]:
                axes.set_title(f"head {head}", fontsize=7)
    return figure


def next_token(trace: Trace, place: int = -1, most: int = 15) -> Figure:
    """The most likely tokens after one place, as bars."""
    shares, ids = trace.logits[place].float().cpu().softmax(-1).topk(most)
    names = [_visible(each) for each in trace.subject.pieces(ids.tolist())]
    figure = Figure(figsize=(4.5, 0.6 + 0.24 * most), layout="constrained")
    axes = figure.subplots()
    axes.barh(range(most), shares.tolist(), color="tab:blue")
    axes.set_yticks(range(most), names, fontsize=8)
    axes.invert_yaxis()
    axes.set(xlabel="probability", xlim=(0, None))
    return figure


def alignment(
    weights: Tensor, rows: Sequence[str], columns: Sequence[str], title: str = ""
) -> Figure:
    """Where each target token (a row) looked in the source (the columns); a row adds up to 1."""
    figure = Figure(
        figsize=(1.8 + 0.36 * len(columns), 1.6 + 0.3 * len(rows)), layout="constrained"
    )
    axes = figure.subplots()
    axes.imshow(weights.numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    names = [_visible(each) for each in columns]
    axes.set_xticks(range(len(columns)), names, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), [_visible(each) for each in rows])
    axes.set(xlabel="source", ylabel="target")
    axes.set_title(_plain(title if len(title) <= 60 else f"{title[:59]}…"), fontsize=9)
    return figure


def _visible(piece: str) -> str:
    """A token as a label: spaces and ends of lines show, and nothing in it is set as a formula."""
    return _plain(piece.replace(" ", "·").replace("\n", "⏎"))


def _plain(text: str) -> str:
    """Text from outside as it is: dollars begin no formula, and control characters show."""
    return escape_line(text).replace("$", r"\$")


def _write_numbers(axes: object, table: Tensor, limits: tuple[float, float], light: bool) -> None:
    low, high = limits
    for i, row in enumerate(table.tolist()):
        for j, value in enumerate(row):
            place = (value - low) / (high - low)
            dark = place < 0.6 if light else not 0.15 < place < 0.85
            text = "−∞" if value == float("-inf") else f"{value:.2f}".replace("-", "−")
            colour = "white" if dark and text != "−∞" else "black"
            axes.text(j, i, text, ha="center", va="center", color=colour, fontsize=8)  # type: ignore[attr-defined]


def save(figure: Figure, path: Path) -> None:
    """Write a picture; the ending says which kind."""
    figure.savefig(path, dpi=150)


def png(figure: Figure) -> bytes:
    """A picture as the bytes of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=150, format="png")
    return buffer.getvalue()


def curve(records: Sequence[Mapping[str, Any]], figure: str, title: str = "") -> Figure:
    """A run's loss, step by step and smoothed over it, and its validation figure; the records are
    those that `train.records.read` gives."""
    steps = [r for r in records if r["event"] == "step"]
    points = [r for r in records if r["event"] == "evaluation"]
    losses = [float(r["train_loss"]) for r in steps]
    drawing = Figure(figsize=(7, 4), layout="constrained")
    axes = drawing.subplots()
    axes.plot([r["step"] for r in steps], losses, color="0.8", linewidth=0.8, label="training loss")
    axes.plot([r["step"] for r in steps], _smooth(losses), color="tab:blue", label="smoothed")
    if points:
        at, held = [r["step"] for r in points], [float(r["validation_loss"]) for r in points]
        axes.plot(at, held, "o", color="tab:red", label="validation loss")
        last, name = points[-1], figure.replace("_", " ")
        value = float(last[f"validation_{figure}"])
        axes.set_title(f"{_plain(title)}   validation {name} {value:.3f} at step {last['step']}")
    axes.set(xlabel="step", ylabel="loss (nats)")
    axes.legend()
    return drawing


def _smooth(values: Sequence[float], weight: float = 0.95) -> list[float]:
    """A running mean that starts at the first value and not at zero."""
    smoothed, total, norm = [], 0.0, 0.0
    for value in values:
        total, norm = weight * total + value, weight * norm + 1
        smoothed.append(total / norm)
    return smoothed
