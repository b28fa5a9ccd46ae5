"""Change what a model computes: zero, scale, replace, steer, freeze.

    from clearformer.interventions import head, residual

    with model.edit(zero=head(2, 3)):
        model.generate("Once upon")

A point (`points.py`) has the name under which `trace` records it. Nothing in `core` knows of this:
inside an edit each attention computes the explicit formula, and every point calls the edit.
"""

from clearformer.interventions.edit import Edit, edit
from clearformer.interventions.points import (
    Point,
    attention,
    head,
    mlp,
    neuron,
    norm,
    point,
    residual,
)

__all__ = [
    "Edit",
    "Point",
    "attention",
    "edit",
    "head",
    "mlp",
    "neuron",
    "norm",
    "point",
    "residual",
]
