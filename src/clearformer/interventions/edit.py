"""`edit`: a context in which a model computes with some of its points changed.

    with edit(model, zero=head(2, 3), steer={residual(4): vector}):
        ...

Inside, every attention computes the explicit formula; afterwards the model is as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, cast

from torch import Tensor

from clearformer.arguments import check_keywords, require_number
from clearformer.interventions.changes import Add, Average, Change, Put, Scale, SetWeights
from clearformer.interventions.instrument import (
    AnyTransformer,
    Listener,
    Site,
    Span,
    listening,
)
from clearformer.interventions.points import AXES, READ_ONLY, Point, Recorded
from clearformer.interventions.points import attention as attention_point
from clearformer.interventions.stages import NORMS

Points = Point | Iterable[Point]
FREEZABLE = ("weights", *NORMS)
EXAMPLES = {
    "freeze": "{attention(): trace}",
    "replace": "{residual(3).at(-1): trace}",
    "mean": "{head(2, 3): traces}",
    "scale": "{head(2, 3): 0.5}",
    "weights": "{attention(2, 3)[5, 1]: 0.9}",
    "steer": "{residual(4): vector}",
}


class Edit(Listener):
    """Changes of a model's computation, in force inside a ``with`` statement.

    Edits nest: at one point the outer one acts first. Gradients flow through what is changed.
    Meanwhile every thread that uses the model computes with the changes.
    """

    def __init__(self, model: AnyTransformer, *, renormalize: bool = True) -> None:
        self.model = model
        self.changes: dict[Site, list[Change]] = {}
        self.renormalize = renormalize
        self._entered: list[ExitStack] = []

    def add(self, point: Point, change: Change) -> None:
        """Change a point; the stages, layers and heads are checked at once."""
        for site in point.sites(self.model):
            if site.stage in READ_ONLY:
                instead = READ_ONLY[site.stage]
                raise ValueError(f"{site.stage} can only be read: change {instead!r} instead")
            if site.stage in NORMS and isinstance(change, Scale) and change.is_zero:
                raise ValueError(
                    f"{point} cannot be zero, since the norm divides by it: scale it, or zero "
                    f"what the layer adds"
                )
            self.changes.setdefault(site, []).append(change)

    def attention(self, layer: int, head: int, part: str | None = None) -> Cells:
        """The weights of a head, to be set: ``edit.attention(2, 3)[query, key] = 0.5``."""
        return Cells(self, attention_point(layer, head, part))

    def set_weight(self, point: Point, weight: float | Tensor) -> None:
        """Set one attention weight; see `SetWeights`."""
        if point.key is None:
            raise ValueError(f"{point} is not a weight: write attention(layer, head)[query, key]")
        if isinstance(weight, Tensor) and weight.numel() == 1:
            weight = weight.item()
        require_number("weight", weight)
        if self.renormalize and not 0 <= weight <= 1:
            raise ValueError(
                f"the weight is {weight:g}, but it must be from 0 to 1: pass renormalize=False "
                f"to set any number"
            )
        for site in point.sites(self.model):
            changes = self.changes.setdefault(site, [])
            # Weights of one row are set together, so that none is scaled by the next.
            if not changes or not isinstance(changes[-1], SetWeights):
                changes.append(SetWeights(self.renormalize))
            last = changes[-1]
            assert isinstance(last, SetWeights)
            last.cells.append((point, float(weight)))

    def wants(self, site: Site) -> bool:
        return site in self.changes

    def visit(self, site: Site, x: Tensor, span: Span) -> Tensor:
        for change in self.changes.get(site, ()):
            x = change.apply(site, x, span)
        return x

    def __enter__(self) -> Edit:
        stack = ExitStack()
        stack.enter_context(listening(self.model, self))
        self._entered.append(stack)
        return self

    def __exit__(self, *exception: object) -> None:
        self._entered.pop().close()


class Cells:
    """The attention weights of one head; assigning to ``[query, key]`` sets one."""

    def __init__(self, edit: Edit, point: Point) -> None:
        self.edit = edit
        self.point = point

    def __setitem__(self, cell: tuple[int, int], weight: float) -> None:
        self.edit.set_weight(self.point[cell], weight)


@check_keywords
def edit(
    model: object,
    *,
    zero: Points = (),
    scale: Mapping[Point, float | Tensor] | None = None,
    replace: Mapping[Point, Tensor | Recorded] | None = None,
    mean: Mapping[Point, Recorded | Sequence[Recorded]] | None = None,
    steer: Mapping[Point, Tensor] | None = None,
    freeze: Mapping[Point, Recorded] | None = None,
    weights: Mapping[Point, float] | None = None,
    renormalize: bool = True,
) -> Edit:
    """Change what a model computes, inside a ``with`` statement.

    At one point, the changes act in the order of the arguments below; nest two edits for another.

    Args:
        model (Model or nn.Module): A loaded model, or a module that `build` returned.
        freeze (dict, optional): Attention patterns or norms held at what a trace recorded:
            ``{attention(): trace, norm(): trace}``.
        replace (dict, optional): Activation patching: ``{residual(3).at(-1): trace}`` takes the
            value of another text's trace at the same point; a tensor works too.
        mean (dict, optional): Mean ablation: ``{head(2, 3): traces}`` takes the mean over all
            tokens of one or several traces.
        zero (point or list of points): Set to zero: ``zero=head(2, 3)``.
        scale (dict, optional): Multiplied: ``{head(2, 3): 0.5}``.
        weights (dict, optional): Attention weights set: ``{attention(2, 3)[5, 1]: 0.9}``.
        steer (dict, optional): A vector added: ``{residual(4): vector}``.
        renormalize (bool): When a weight is set, scale the others of its row so that the row
            still sums to 1. Default: True.

    Returns:
        Edit: A context manager. ``edit.attention(2, 3)[5, 1] = 0.9`` inside sets a weight too.

    Raises:
        ValueError: If the model has no such part, layer, head or stage.
    """
    found = Edit(module_of(model), renormalize=renormalize)
    for point, trace in _pairs("freeze", freeze):
        found.add(point, Put(_freezable(point), _recorded("freeze", trace)))
    for point, value in _pairs("replace", replace):
        found.add(point, Put(point, _value("replace", value)))
    for point, traces in _pairs("mean", mean):
        found.add(point, Average(_averaged(point), _traces(traces)))
    for point in _points(zero):
        found.add(point, Scale(point, 0.0))
    for point, factor in _pairs("scale", scale):
        found.add(point, Scale(point, _factor(factor)))
    for point, weight in _pairs("weights", weights):
        found.set_weight(point, weight)
    for point, vector in _pairs("steer", steer):
        found.add(point, Add(point, _vector(vector)))
    return found


def module_of(model: object) -> AnyTransformer:
    """The module of a loaded model, or the module itself."""
    module: Any = getattr(model, "module", model)
    if not hasattr(module, "stacks"):
        raise ValueError(
            f"{type(model).__name__} is not a model of clearformer: pass the result of "
            f"clearformer.load or clearformer.build, or look at it with clearformer.watch"
        )
    return cast(AnyTransformer, module)


def _pairs(name: str, values: Mapping[Point, Any] | None) -> Iterable[tuple[Point, Any]]:
    """The points of an argument with their values."""
    if values is None:
        return ()
    if not isinstance(values, Mapping):
        raise ValueError(
            f"{name} is a {type(values).__name__}, but it must be a dict from points to values: "
            f"write {name}={EXAMPLES[name]}"
        )
    return [(_point(point), value) for point, value in values.items()]


def _points(points: Points | None) -> list[Point]:
    several = points if isinstance(points, list | tuple | set | frozenset) else [points]
    return [] if points is None else [_point(each) for each in several]


def _point(point: object) -> Point:
    if not isinstance(point, Point):
        raise ValueError(f"{point!r:.60} is not a point: write head(2, 3) or residual(4)")
    return point


def _factor(factor: object) -> float | Tensor:
    if not isinstance(factor, Tensor):
        require_number("scale", factor)
    return cast("float | Tensor", factor)


def _freezable(point: Point) -> Point:
    for stage in point.stages:
        if stage not in FREEZABLE:
            raise ValueError(
                f"{point} cannot be frozen: freeze attention() or norm(); use replace for others"
            )
    return point


def _averaged(point: Point) -> Point:
    for stage in point.stages:
        if AXES[stage].endswith("Tk"):
            raise ValueError(f"{point} has no mean: its size depends on the text; use head(2, 3)")
    return point


def _recorded(name: str, trace: object) -> Recorded:
    if not hasattr(trace, "get") or isinstance(trace, Mapping):
        raise ValueError(
            f"{name} has a {type(trace).__name__}, but it must be a trace: pass model.trace(text)"
        )
    return cast(Recorded, trace)


def _traces(traces: object) -> list[Recorded]:
    several = list(traces) if isinstance(traces, list | tuple) else [traces]
    if not several:
        raise ValueError("mean has no traces: pass model.trace(text) or a list of them")
    return [_recorded("mean", each) for each in several]


def _value(name: str, value: object) -> Tensor | Recorded:
    return value if isinstance(value, Tensor) else _recorded(name, value)


def _vector(vector: object) -> Tensor:
    if not isinstance(vector, Tensor):
        raise ValueError(
            f"steer has a {type(vector).__name__}, but it must be a tensor: pass a vector of the "
            f"model's width"
        )
    return vector
