"""Learning curve: the same run on growing shares of the training data.

Every share is a run of its own, in a folder of `out`; all are evaluated on the same texts. The
curve tells whether more data would help.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from clearformer import safe_files
from clearformer.arguments import as_path, require_number
from clearformer.run_training import Training
from clearformer.runs.listing import summarize
from clearformer.runs.progress import Reporter, reporter
from clearformer.runs.signals import StopOnInterrupt

PICTURE = "learning-curve.png"


@dataclass(frozen=True)
class CurvePoint:
    """What a run on a share of the training data reached."""

    share: float
    folder: Path
    metric: str
    value: float
    error: float | None  # standard error

    def line(self) -> str:
        sure = "" if self.error is None else f" ± {self.error:.4f}"
        name = self.metric.replace("_", " ")
        return f"{self.share:>5.0%} of the data: {name} {self.value:.4f}{sure}  {self.folder}"


def learning_curve(
    preset: str | None = None,
    *,
    shares: Sequence[float] = (0.1, 0.3, 1.0),
    out: str | os.PathLike[str] | None = None,
    report: Reporter | None = None,
    **options: object,
) -> list[CurvePoint]:
    """Train on each share of the training data, and draw what that reaches.

    Args:
        preset (str, optional): As in `clearformer.train`.
        shares (list of float): Shares of the training data, each above 0 and at most 1. Default:
            a tenth, three tenths, and all of it.
        out (path, optional): The folder of the runs, which also gets the picture. Default: that of
            `clearformer.train`.
        report (Reporter, optional): Where progress goes. Default: as in `clearformer.train`.
        **options: As in `clearformer.train`.

    Returns:
        list of CurvePoint: One for each share that was trained to its end, the smallest first.

    Raises:
        ValueError: For a share that is not above 0 and at most 1, and as `clearformer.train`.
    """
    ordered = _checked(shares)
    settings: dict[str, Any] = dict(options)
    quiet, json = bool(settings.get("quiet")), bool(settings.get("json"))
    place = None if out is None else as_path("out", out)
    points = []
    for share in ordered:
        if place is None:
            place = Training(preset, **cast(Any, settings)).folder
        folder = place / f"share-{share:g}"
        training = Training(
            preset, out=folder, **cast(Any, {**settings, "data.training_share": share})
        )
        with StopOnInterrupt() as interrupt:
            code = training.execute(report or reporter(quiet=quiet, json=json), interrupt.exit_code)
        if code:
            break
        points.append(_point(share, folder, training))
    if place is not None and len(points) > 1:
        safe_files.replace(place / PICTURE, _picture(points))
    return points


def _checked(shares: Sequence[float]) -> list[float]:
    if not shares:
        raise ValueError("`shares` is empty, but a learning curve needs at least one share")
    for share in shares:
        require_number("shares", share, 0, 1)
        if not share:
            raise ValueError("`shares` has 0, but a share must be above 0")
    return sorted(set(shares))


def _point(share: float, folder: Path, training: Training) -> CurvePoint:
    from clearformer.tasks.registry import task_of

    found = summarize(folder)
    metric = training.config.train.best_metric or task_of(training.config.model).metric
    return CurvePoint(
        share, folder, metric, found.figures[metric], found.figures.get("standard_error")
    )


def _picture(points: Sequence[CurvePoint]) -> bytes:
    from clearformer.explore import figures

    rows = [(100 * each.share, each.value, each.error or 0.0) for each in points]
    return figures.png(figures.learning_curve(rows, points[0].metric))
