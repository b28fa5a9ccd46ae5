"""Direct logit attribution: what each component adds to a logit, through no other component.

The last residual stream is a sum: the embedding, each head, each W_o's bias, each MLP. The final
norm with its scale held fixed and the output matrix are linear, so the logit is a sum too.

Axes: N layers, H heads, D head width, E model width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from clearformer.core.attention import Attention
from clearformer.explore.trace import Trace, trace
from clearformer.explore.traced_model import TracedModel, as_traced_model
from clearformer.interpretability.metrics import LogitDifference, Text, Token, make_metric
from clearformer.interventions.instrument import attentions, is_listened
from clearformer.interventions.stages import NORM_SCALES

STAGES = ("resid_pre", "head_out", "mlp_out", "resid_post", "final_norm_scale")


@dataclass(frozen=True)
class LogitAttribution:
    """What each component adds to the logit difference; all of it sums to `total`.

    Attributes:
        total (float): The logit difference itself, before a cap of the logits if there is one.
        embedding (float): Of the token and its position.
        heads (Tensor): (N, H).
        mlps (Tensor): (N,).
        biases (float): Of all W_o biases, the final norm's and the output's.
        cross_heads (Tensor): (N, H) of a decoder; else of size 0.
        edits (float): What an edit around it adds to the stream beside these; 0 without one.
    """

    total: float
    embedding: float
    heads: Tensor
    mlps: Tensor
    biases: float
    cross_heads: Tensor
    edits: float = 0.0

    def rows(self) -> list[dict[str, object]]:
        """Every component, the largest first."""
        found: list[dict[str, object]] = [
            {"component": "embedding", "layer": None, "head": None, "value": self.embedding},
            {"component": "biases", "layer": None, "head": None, "value": self.biases},
        ]
        if self.edits:
            found.append({"component": "edits", "layer": None, "head": None, "value": self.edits})
        for name, table in (("head", self.heads), ("cross head", self.cross_heads)):
            for layer, values in enumerate(table.tolist()):
                for number, value in enumerate(values):
                    row = {"component": name, "layer": layer, "head": number, "value": value}
                    found.append(row)
        for layer, value in enumerate(self.mlps.tolist()):
            found.append({"component": "mlp", "layer": layer, "head": None, "value": value})
        return sorted(found, key=lambda row: -abs(float(str(row["value"]))))


@torch.inference_mode()
def direct_logit_attribution(
    model: object, text: Text, right: Token, wrong: Token | None = None, position: int = -1
) -> LogitAttribution:
    """Split a logit difference into what each component adds to it directly.

    Args:
        model (Model or nn.Module): A pre-norm model that predicts tokens, such as GPT-2.
        text (str, ids, or pair of these): What it reads.
        right (str or int): The token.
        wrong (str or int, optional): The other one. Default: the logit of `right` alone.
        position (int): Which position's logits. Default: -1, the last.

    Returns:
        LogitAttribution: `heads` (N, H), `mlps` (N,), `embedding` and `biases` sum to `total`;
        inside an edit, together with `edits`.
    """
    traced = as_traced_model(model)
    found = trace(traced, text, STAGES)
    part = list(traced.module.stacks)[-1]
    norm, project = _output(traced)
    metric = make_metric(traced, found.input, right, wrong, position)
    assert isinstance(metric, LogitDifference)
    direction = project.weight[metric.right].clone()
    constant = _bias(project, metric.right)
    if metric.wrong is not None:
        direction -= project.weight[metric.wrong]
        constant -= _bias(project, metric.wrong)
    layers = found.layers(part)
    final = found.get("resid_post", layers[-1], None, part)[position]  # (E,)
    scale = found.get("final_norm_scale", layers[-1], None, part)[position]  # (1,)

    def logit(x: Tensor) -> Tensor:
        """What vectors (..., E) of the residual stream add to the logit difference."""
        centred = x - x.mean(-1, keepdim=True) if isinstance(norm, nn.LayerNorm) else x
        return (centred / scale * gain) @ direction

    weight, bias = getattr(norm, "weight", None), getattr(norm, "bias", None)
    gain: Tensor = torch.ones_like(direction) if weight is None else weight
    output_bias = constant + (0.0 if bias is None else float(bias @ direction))
    biases = output_bias
    places = attentions(traced.module)
    heads, cross = [], []
    for layer in layers:
        own = _heads(found, places[part, layer], part, layer, position)
        heads.append(logit(own[:-1]))
        biases += float(logit(own[-1]))
        if part == "decoder":
            other = _heads(found, places["cross", layer], "cross", layer, position)
            cross.append(logit(other[:-1]))
            biases += float(logit(other[-1]))
    mlps = logit(torch.stack([found.get("mlp_out", n, None, part)[position] for n in layers]))
    result = LogitAttribution(
        total=float(logit(final)) + output_bias,
        embedding=float(logit(found.get("resid_pre", 0, None, part)[position])),
        heads=torch.stack(heads),
        mlps=mlps,
        biases=biases,
        cross_heads=torch.stack(cross) if cross else mlps.new_zeros(0, 0),
    )
    if not is_listened(traced.module):
        return result
    known = sum(float(str(row["value"])) for row in result.rows())
    return replace(result, edits=result.total - known)


def _heads(found: Trace, attention: Attention, part: str, layer: int, at: int) -> Tensor:
    """What each head adds to the stream, then the bias: (H + 1, E)."""
    out = found.get("head_out", layer, None, part)[:, at]  # (H, D)
    heads, width = out.shape
    merged = out.new_zeros(heads + 1, heads, width)  # one head in each row, none in the last
    merged[range(heads), range(heads)] = out
    added: Tensor = attention.output(merged.flatten(1))  # (H + 1, E), the bias in each
    return torch.cat((added[:-1] - added[-1], added[-1:]))


def _output(traced: TracedModel) -> tuple[nn.Module, nn.Linear]:
    """The final norm and the output matrix of a model whose logits are linear in the stream."""
    *_, stack = traced.module.stacks.values()
    head = traced.module.head
    project = getattr(head, "project", None)
    linear = type(project) is nn.Linear and getattr(head, "token_head", None) is head
    if isinstance(project, nn.Module) and type(project) is not nn.Linear:
        raise ValueError(
            f"direct logit attribution needs an output matrix in floating point, but this model "
            f"has one as {type(project).__name__}: load the run that it was made from"
        )
    if type(stack.norm) not in NORM_SCALES or not linear or hasattr(head, "transform"):
        raise ValueError(
            "direct logit attribution needs a model whose logits are linear in its residual "
            "stream: a pre-norm model that predicts tokens, such as gpt2 or modern"
        )
    assert isinstance(project, nn.Linear)
    return stack.norm, project


def _bias(project: nn.Linear, row: int) -> float:
    return 0.0 if project.bias is None else float(project.bias[row])
