"""Many variants of one forward pass at once, each with its own change in one layer.

Up to that layer the variants are one row, from it on one row each; and where only one position
is measured, the output layer computes only that one. `one_by_one` is the same with one edit and
one pass for each variant; it serves the models whose parts must all have the same batch.

Axes: B variants, T tokens, H heads, D head width, E model width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from clearformer.core.cache import Cache
from clearformer.explore.traced_model import ModelInput, TracedModel
from clearformer.interpretability.metrics import LogitDifference, Metric, measure
from clearformer.interventions import Edit, Point
from clearformer.interventions.changes import Change
from clearformer.interventions.instrument import Listener, Site, Span, is_listened, listening

ROWS = 32  # variants at once: more cost memory and save no time
Variant = tuple[Point, Callable[[Point], Change]]


class Rows(Listener):
    """One row for each variant, from the layer of their points on."""

    def __init__(self, model: TracedModel, layer: int, variants: Sequence[Variant]) -> None:
        self.layer = layer
        self.count = len(variants)
        self.changes: dict[Site, list[tuple[int, Change]]] = {}
        for row, (point, make) in enumerate(variants):
            for site in point.sites(model.module):
                self.changes.setdefault(site, []).append((row, make(point)))

    def wants(self, site: Site) -> bool:
        return site in self.changes or (site.layer, site.stage) == (self.layer, "resid_pre")

    def visit(self, site: Site, x: Tensor, span: Span) -> Tensor:
        if site.stage == "resid_pre" and len(x) == 1:
            x = x.expand(self.count, *x.shape[1:])
        changes = self.changes.get(site, ())
        if not changes:
            return x
        rows = list(x.unsqueeze(1))  # each (1, T, E)
        for row, change in changes:
            rows[row] = change.apply(site, rows[row], span)
        return torch.cat(rows)


class OnePosition(Listener):
    """Leaves one position of the last layer's output, all that a logit difference needs."""

    def __init__(self, layer: int, position: int) -> None:
        self.site = Site("self", layer, "resid_post")
        self.position = position

    def wants(self, site: Site) -> bool:
        return site == self.site

    def visit(self, site: Site, x: Tensor, span: Span) -> Tensor:
        return x[:, [self.position]]  # (B, 1, E)


@torch.no_grad()
def measured(
    traced: TracedModel,
    model_input: ModelInput,
    metric: Metric,
    layer: int,
    variants: Sequence[Variant],
    caches: list[Cache] | None = None,
) -> Tensor:
    """The metric of each variant, all of which change one layer: (B,).

    With a memory the variants change every segment, or with `caches` only the last.
    """
    if len(traced.module.stacks) > 1 or model_input.memory is not None:
        return one_by_one(traced, model_input, metric, variants, caches)
    module, found = traced.module, []
    for first in range(0, len(variants), ROWS):
        some = variants[first : first + ROWS]
        with listening(module, Rows(traced, layer, some)):
            found.append(_measure(traced, model_input, metric))
    return torch.cat(found)


def _measure(traced: TracedModel, model_input: ModelInput, metric: Metric) -> Tensor:
    tokenwise = hasattr(traced.module.head, "token_head")
    if not isinstance(metric, LogitDifference) or not tokenwise:
        return measure(traced, model_input, metric)
    last = len(traced.transformer.stack.blocks) - 1
    if is_listened(traced.module, Site("self", last, "final_norm_scale")):
        return measure(traced, model_input, metric)  # an edit around counts positions there
    with listening(traced.module, OnePosition(last, metric.position)):
        return measure(traced, model_input, replace(metric, position=0))


@torch.no_grad()
def one_by_one(
    traced: TracedModel,
    model_input: ModelInput,
    metric: Metric,
    variants: Sequence[Variant],
    caches: list[Cache] | None = None,
) -> Tensor:
    """The metric of each variant, by one edit and one pass for each: (B,)."""
    found = []
    for point, make in variants:
        edit = Edit(traced.module)
        edit.add(point, make(point))
        with edit:
            found.append(measure(traced, model_input, metric, caches))
    return torch.cat(found)
