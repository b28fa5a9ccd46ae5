"""Draws a picture for each bug of docs/verify.md, for light and dark pages, when the site is built.

As a script it draws into a folder: python docs/_ext/verify_figures.py build/verify [NAME ...]
"""

import hashlib
import sys
import warnings
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

HERE = Path(__file__).parent
FOLDER = HERE.parent / "_generated" / "verify"
THEMES = {
    "light": {"ink": "#24292f", "paper": "#ffffff", "mark": "#0b5fa5", "nan": "#d1242f"},
    "dark": {"ink": "#d7dbe0", "paper": "#14181e", "mark": "#6cb6ff", "nan": "#ff7b72"},
}


def draw(name, folder, numbers=None):
    """Draw one bug's picture in both themes."""
    from verify_views import VIEWS

    view = VIEWS[name]
    wrong, right = numbers or compute(name)
    for theme, colours in THEMES.items():
        ink = colours["ink"]
        style = {
            "text.color": ink, "axes.labelcolor": ink, "xtick.color": ink, "ytick.color": ink,
            "axes.edgecolor": ink, "font.size": 9, "svg.hashsalt": name, "axes.facecolor": "none",
            "axes.titlesize": 10,
        }  # fmt: skip
        with mpl.rc_context(style):
            figure = Figure(figsize=(6.4, 2.6), layout="constrained")
            axes = figure.subplots(1, 2)
            limits = common_limits(view, wrong, right)
            for axis, title, values in zip(axes, ("wrong", "right"), (wrong, right), strict=True):
                PANELS[view.kind](axis, view, values, limits, colours)
                axis.set(title=title, xlabel=view.x, ylabel=view.y)
            figure.savefig(
                folder / f"{name}-{theme}.svg", transparent=True, metadata={"Date": None}
            )


def compute(name):
    """The numbers of the wrong and the right form."""
    from verify_views import VIEWS

    view = VIEWS[name]
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        wrong = view.wrong()
        torch.manual_seed(0)
        right = view.right()
    return tuple(each.detach().double().numpy() for each in (wrong, right))


def common_limits(view, wrong, right):
    """One range for both panels, so that they can be compared."""
    values = np.concatenate((wrong.ravel(), right.ravel()))
    values = values[np.isfinite(values)]
    low, high = float(values.min()), float(values.max())
    return (min(low, 0.0), high if high > low else low + 1)


def table(axis, view, values, limits, colours):
    colour = LinearSegmentedColormap.from_list("one", [colours["paper"], colours["mark"]])
    colour = colour.with_extremes(bad=colours["nan"])
    low, high = limits
    if view.log:
        low, high = np.log10(1e-5 * high), np.log10(high)
        values = np.log10(np.clip(values, 10**low, None))
    axis.imshow(values, cmap=colour, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axis.yaxis.set_major_locator(MaxNLocator(6, integer=True))


def bars(axis, view, values, limits, colours):
    if view.log:
        floor = max(1e-9, float(values[values > 0].min()) / 10 if (values > 0).any() else 1e-9)
        axis.set_yscale("log")
        axis.set_ylim(floor, limits[1] * 3)
    else:
        axis.set_ylim(limits[0], limits[1] * 1.05)
    axis.bar(range(len(values)), values, color=colours["mark"])
    axis.xaxis.set_major_locator(MaxNLocator(8, integer=True))


def lines(axis, view, values, limits, colours):
    margin = 0.05 * (limits[1] - limits[0])
    axis.set_ylim(limits[0] - margin, limits[1] + margin)
    marker = "." if len(values) < 25 else ""
    axis.plot(view.ticks[: len(values)], values, color=colours["mark"], marker=marker)
    axis.set_xlim(view.ticks[0], view.ticks[-1])


PANELS = {"table": table, "bars": bars, "lines": lines}


def digest():
    """A hash of everything that the pictures depend on."""
    import clearformer.verification as package

    files = [Path(__file__), HERE / "verify_views.py"]
    files += sorted((HERE.parents[1] / "benchmarks" / "verify_models").glob("*.py"))
    files += sorted(Path(package.__file__).parent.rglob("*.py"))
    found = hashlib.sha256(torch.__version__.encode())
    for file in files:
        found.update(file.read_bytes())
    return found.hexdigest()


def draw_all(app=None):
    """Draw every picture, unless nothing has changed since the last time."""
    from verify_views import VIEWS

    stamp = FOLDER / "digest"
    if stamp.exists() and stamp.read_text() == digest():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in VIEWS:
        draw(name, FOLDER)
    stamp.write_text(digest())


def setup(app):
    app.connect("builder-inited", draw_all)
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    from verify_views import VIEWS as ALL

    for bug in sys.argv[2:] or ALL:
        draw(bug, target)
