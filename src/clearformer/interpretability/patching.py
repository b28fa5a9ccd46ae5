"""Activation patching: where a value of the clean text restores the clean answer.

The model reads the corrupted text; at one point after the other the value that it had for the
clean text is put in, and the logit difference is measured.

Axes: N layers, T tokens, H heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from clearformer.explore.trace import memory_of, trace
from clearformer.explore.traced_model import as_traced_model, encode_input
from clearformer.inference.modes import evaluating
from clearformer.interpretability.batched import Variant, measured
from clearformer.interpretability.metrics import Text, Token, make_metric, measure
from clearformer.interventions import Point, point
from clearformer.interventions.changes import Change, Put
from clearformer.interventions.instrument import attentions
from clearformer.interventions.points import AXES

By = Literal["position", "head"]
STAGES = ("resid_pre", "attn_out", "mlp_out", "resid_mid", "resid_post")


@dataclass(frozen=True)
class PatchGrid:
    """The logit difference after patching one point after the other.

    Attributes:
        values (Tensor): (N, T) by position, or (N, H) by head.
        clean (float): Of the clean text.
        corrupted (float): Of the corrupted text.
        tokens (list of str): Those of the corrupted text.
        stage (str): What was patched.
        by (str): ``"position"`` or ``"head"``.
    """

    values: Tensor
    clean: float
    corrupted: float
    tokens: list[str]
    stage: str
    by: str

    @property
    def recovered(self) -> Tensor:
        """The share of the difference between both texts that each point restores."""
        return (self.values - self.corrupted) / (self.clean - self.corrupted)


def patch(
    model: object,
    clean: Text,
    corrupted: Text,
    *,
    right: Token,
    wrong: Token | None = None,
    position: int = -1,
    by: By = "position",
    stage: str | None = None,
) -> PatchGrid:
    """Patch values of a clean text into the computation of a corrupted one.

    Args:
        model (Model or nn.Module): A model with one stack.
        clean (str or ids): The text whose values are put in.
        corrupted (str or ids): The text that is read; as many tokens as the clean one.
        right (str or int): The token that the clean text predicts.
        wrong (str or int, optional): The token that the corrupted one predicts.
        position (int): The position of these logits. Default: -1, the last.
        by (str): ``"position"``: one point for each layer and token; ``"head"``: for each
            layer and head, at all positions. Default: ``"position"``.
        stage (str, optional): What to patch. Default: ``"resid_pre"`` by position,
            ``"head_out"`` by head.

    Returns:
        PatchGrid: ``values[layer, position]`` is the logit difference after that patch.
    """
    if by not in ("position", "head"):
        raise ValueError(f"by is {by!r}, but it must be position or head")
    stage = stage or {"position": "resid_pre", "head": "head_out"}[by]
    _require_stage(stage, by)
    traced = as_traced_model(model)
    if len(traced.module.stacks) > 1:
        raise ValueError("patching grids are for models with one stack: use model.edit(replace=)")
    given, source = encode_input(traced, corrupted), encode_input(traced, clean)
    length, wanted = given.tokens.shape[1], source.tokens.shape[1]
    if length != wanted:
        raise ValueError(
            f"the clean text has {wanted} tokens and the corrupted one {length}, but patching "
            f"needs as many: change one word for another of the same number of tokens"
        )
    metric = make_metric(traced, given, right, wrong, position)
    recorded = trace(traced, clean, (stage,))
    with torch.no_grad():
        right_end, wrong_end = (float(measure(traced, each, metric)[0]) for each in (source, given))
        with evaluating(traced.module):
            caches = memory_of(traced, given)  # the recorded values are of the last segment

    def change(where: Point) -> Change:
        return Put(where, recorded)

    rows = []
    for (_, layer), attention in attentions(traced.module).items():
        variants: list[Variant]
        if by == "head":
            variants = [(point(stage, layer, each), change) for each in range(attention.heads)]
        else:
            tokens = range(length - given.start)
            variants = [(point(stage, layer).at(each), change) for each in tokens]
        rows.append(measured(traced, given, metric, layer, variants, caches))
    words = traced.pieces(given.queries("self"))
    return PatchGrid(torch.stack(rows), right_end, wrong_end, words, stage, by)


def _require_stage(stage: str, by: By) -> None:
    heads = [name for name, axes in AXES.items() if axes == "H,Tq,D"] + ["k", "v", "weights"]
    possible = STAGES if by == "position" else tuple(heads)
    if stage not in possible:
        raise ValueError(f"stage is {stage!r}, but by {by} it must be {', '.join(possible)}")
