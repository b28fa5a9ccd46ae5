"""The feed-forward layer (MLP) at one token: its strongest hidden units, and what each adds.

A unit reads the token's vector with one row of the first matrix, applies the activation, and adds
its column of the second matrix, times its value. A gated layer has two rows for each unit: the
activation of the gate multiplies the other product. All units and the bias add up to the output.

Axes: E model width, F hidden width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.explore import arrays, token_display
from clearformer.explore.module_calls import last_calls
from clearformer.explore.norms import require_stack
from clearformer.explore.recording import blocks
from clearformer.explore.trace_cache import CachedTrace
from clearformer.explore.views import token_index
from clearformer.http_server.errors import require_index

MAX_UNITS = 100
PUSHED = 4  # tokens that a unit raises most, and as many that it lowers most


@dataclass(frozen=True)
class Matrix:
    """The weights of a linear layer, whichever class multiplies by them."""

    weight: Tensor
    bias: Tensor | None

    @classmethod
    def of(cls, module: nn.Module) -> Matrix:
        table = dict(module.named_parameters())
        return cls(table["weight"].detach(), table["bias"].detach() if "bias" in table else None)


class TokenUnits:
    """The hidden units of one layer at one token."""

    def __init__(self, cached: CachedTrace, layer: int, i: int, part: str | None) -> None:
        module = _require_layer(cached, layer, part)
        up, down = module.get_submodule("up"), module.get_submodule("down")
        self.up, self.down = Matrix.of(up), Matrix.of(down)
        with last_calls({"up": up, "down": down}) as calls:
            cached.all_layers(())
        x, before, hidden, output = (
            each.reshape(-1, each.shape[-1])
            for each in (calls.inputs["up"], calls.outputs["up"], calls.inputs["down"],
                         calls.outputs["down"])
        )  # fmt: skip
        self.i = token_index(i, len(x))
        self.x, self.before, self.hidden, self.output = (
            each[self.i] for each in (x, before, hidden, output)
        )
        self.activation: Any = module.activation

    @property
    def size(self) -> int:
        return self.down.weight.shape[1]

    @property
    def gated(self) -> bool:
        return self.up.weight.shape[0] == 2 * self.size

    @torch.inference_mode()
    def unit(self, j: int) -> dict[str, Any]:
        """One unit: pre-activation, activation, the gated value, and how much it adds."""
        pre = self.before[j]
        row = {
            "j": j,
            "pre": arrays.number(float(pre)),
            # A copy: some activations are in place.
            "activation": arrays.number(float(self.activation(pre.clone()))),
            "value": arrays.number(float(self.before[self.size + j])) if self.gated else None,
            "post": arrays.number(float(self.hidden[j])),
        }
        added = self.added(j)
        # Along the output: these shares of all units and the bias sum to 1.
        total = float(self.output.square().sum())
        share = float(added @ self.output) / total if total else 0.0
        return {**row, "norm": arrays.number(float(added.norm())), "share": arrays.number(share)}

    def added(self, j: int) -> Tensor:
        """What a unit adds to the output: its value times its column of the second matrix."""
        return self.hidden[j] * self.down.weight[:, j]  # (E,)


def units(cached: CachedTrace, layer: int, i: int, k: int, part: str | None) -> dict[str, Any]:
    """The strongest hidden units at one token, by the absolute value of the hidden number."""
    token = TokenUnits(cached, layer, i, part)
    # Stable: of the many units that are 0, the first ones, whatever k.
    order = token.hidden.abs().argsort(descending=True, stable=True)[: min(k, MAX_UNITS)].tolist()
    bias = token.down.bias
    active = int((token.hidden.abs() > 1e-6).sum())
    return {
        "layer": layer,
        "i": token.i,
        "hidden": token.size,
        "gated": token.gated,
        "active": active,
        "units": [token.unit(j) for j in order],
        "values": arrays.floats(token.hidden),
        "pre": arrays.floats(token.before[: token.size]),
        "output": arrays.floats(token.output),
        "bias": None if bias is None else arrays.floats(bias),
    }


def unit(cached: CachedTrace, layer: int, i: int, j: int, part: str | None) -> dict[str, Any]:
    """The arithmetic of one unit: x·W + b, the activation, and the vector that it adds."""
    token = TokenUnits(cached, layer, i, part)
    require_index("j", j, token.size)
    response = token.unit(j)
    response |= {"x": arrays.floats(token.x), **_product(token, j, "")}
    if token.gated:
        response |= _product(token, token.size + j, "value_")
    added = token.added(j)
    response |= {"column": arrays.floats(token.down.weight[:, j]), "added": arrays.floats(added),
                 "pushes": pushes(cached, added)}  # fmt: skip
    return response


def _product(token: TokenUnits, row: int, prefix: str) -> dict[str, Any]:
    w, bias = token.up.weight[row], token.up.bias
    return {
        f"{prefix}w": arrays.floats(w),
        f"{prefix}products": arrays.floats(token.x * w),
        f"{prefix}b": arrays.number(0.0 if bias is None else float(bias[row])),
    }


@torch.inference_mode()
def pushes(cached: CachedTrace, added: Tensor) -> dict[str, Any] | None:
    """The tokens whose logits the vector raises and lowers most, before the final norm."""
    head = getattr(cached.loaded.model.module.head, "token_head", None)
    project = getattr(head, "project", None)
    if project is None:
        return None
    logits = (project.weight @ added).float().cpu()  # (V,)
    count = min(PUSHED, len(logits))
    high, low = logits.topk(count), logits.topk(count, largest=False)
    model = cached.loaded.model
    return {
        name: [
            {"id": item["id"], "display": item["display"], "logit": arrays.number(value)}
            for item, value in zip(
                token_display.vocabulary_items(model, each.indices.tolist()),
                each.values.tolist(),
                strict=True,
            )
        ]
        for name, each in (("raised", high), ("lowered", low))
    }


def _require_layer(cached: CachedTrace, layer: int, part: str | None) -> nn.Module:
    model = cached.loaded.model.module
    part = require_stack(cached, part)
    require_index("layer", layer, len(model.stacks[part].blocks))
    return next(
        block.feed_forward for name, n, block in blocks(model) if (name, n) == (part, layer)
    )
