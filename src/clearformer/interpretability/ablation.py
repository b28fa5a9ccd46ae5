"""Ablation: how a number changes when one head or one MLP is switched off.

Axes: N layers, H heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from clearformer.explore.trace import Trace, trace
from clearformer.explore.traced_model import as_traced_model, encode_input
from clearformer.interpretability.batched import Variant, measured
from clearformer.interpretability.metrics import Text, Token, make_metric, measure
from clearformer.interventions import Point, head, mlp
from clearformer.interventions.changes import Average, Change, Scale
from clearformer.interventions.instrument import attentions

Method = Literal["zero", "mean"]


@dataclass(frozen=True)
class Ablation:
    """The metric of the whole model, and without each head and each MLP.

    Attributes:
        metric (str): ``"loss"`` or ``"logit difference"``.
        baseline (float): Of the model as it is.
        heads (Tensor): (N, H), without each head.
        mlps (Tensor): (N,), without each feed-forward layer; NaN where the part has none.
        part (str): Of a translator encoder, decoder or cross.
    """

    metric: str
    baseline: float
    heads: Tensor
    mlps: Tensor
    part: str = "self"

    def rows(self) -> list[dict[str, object]]:
        """Every component with its change, the largest first."""
        found: list[tuple[float, dict[str, object]]] = []
        for layer, values in enumerate(self.heads.tolist()):
            for number, value in enumerate(values):
                names: dict[str, object] = {"component": "head", "layer": layer, "head": number}
                found.append((value, names))
        for layer, value in enumerate(self.mlps.tolist() if self.part != "cross" else ()):
            found.append((value, {"component": "mlp", "layer": layer, "head": None}))
        found.sort(key=lambda each: -abs(each[0] - self.baseline))
        return [{**names, "value": v, "change": v - self.baseline} for v, names in found]


def ablate(
    model: object,
    text: Text,
    *,
    right: Token | None = None,
    wrong: Token | None = None,
    position: int = -1,
    method: Method = "zero",
    reference: Sequence[Text] | None = None,
    part: str | None = None,
) -> Ablation:
    """Switch off each head and each feed-forward layer in turn, and measure.

    Args:
        model (Model or nn.Module): The model.
        text (str, ids, or pair of these): What it reads.
        right (str or int, optional): Measure the logit of this token, or class.
        wrong (str or int, optional): Minus the logit of this one.
            Default without `right`: the loss of the text.
        position (int): The position of these logits. Default: -1, the last.
        method (str): ``"zero"``, or ``"mean"`` for the mean over the tokens of `reference`.
        reference (list of texts, optional): For ``"mean"``. Default: the text itself.
        part (str, optional): Of a translator ``"encoder"``, ``"decoder"`` or ``"cross"``.
            Default: the first part that the model has.

    Returns:
        Ablation: ``heads[2, 3]`` is the metric without head 3 of layer 2.
    """
    if method not in ("zero", "mean"):
        raise ValueError(f"method is {method!r}, but it must be zero or mean")
    if reference is not None and method != "mean":
        raise ValueError("reference has the texts of a mean: pass method='mean' too")
    traced = as_traced_model(model)
    model_input = encode_input(traced, text)
    metric = make_metric(traced, model_input, right, wrong, position)
    places = attentions(traced.module)
    part = _part([own for own, _ in places], part)
    layers = {layer: each.heads for (own, layer), each in places.items() if own == part}
    traces: list[Trace] = []
    if method == "mean":
        texts = [text] if reference is None else list(reference)
        traces = [trace(traced, each, ("head_out", "mlp_out")) for each in texts]

    def change(point: Point) -> Change:
        return Average(point, traces) if traces else Scale(point, 0.0)

    with torch.no_grad():
        baseline = float(measure(traced, model_input, metric)[0])
    heads, mlps = [], []
    for layer, count in layers.items():
        variants: list[Variant] = [(head(layer, each, part), change) for each in range(count)]
        if part != "cross":
            variants.append((mlp(layer, part), change))
        values = measured(traced, model_input, metric, layer, variants)
        heads.append(values[:count])
        mlps.append(values[count] if part != "cross" else values.new_tensor(float("nan")))
    return Ablation(metric.name, baseline, torch.stack(heads), torch.stack(mlps), part)


def _part(parts: list[str], part: str | None) -> str:
    parts = list(dict.fromkeys(parts))
    if part is not None and part not in parts:
        raise ValueError(f"there is no part {part!r} in this model: there is {', '.join(parts)}")
    return part or parts[0]
