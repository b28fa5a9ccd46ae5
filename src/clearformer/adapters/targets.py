"""Which matrices of a model can be adapted, and which rows of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from clearformer.config.adapters import ALL
from clearformer.core.attention import Attention


@dataclass(frozen=True)
class Slot:
    """A matrix in a block: where it is, and its parts by name with their rows."""

    path: str
    parent: nn.Module
    name: str  # of the attribute
    linear: nn.Linear
    rows: dict[str, range]

    def parts(self, targets: str) -> dict[str, range]:
        """The parts that `targets` names; all but qkv, which is q, k and v as one, for `all`."""
        wanted = [n for n in self.rows if n != "qkv"] if targets == ALL else targets.split(",")
        return {name: rows for name, rows in self.rows.items() if name in wanted}


def slots(model: nn.Module) -> Iterator[Slot]:
    """The matrices of attention and of feed-forward layers, in the order of the model."""
    for path, module in model.named_modules():
        if isinstance(module, Attention):
            rows = {"project": attention_rows(module), "output": {"o": range(module.width)}}
        elif path.rpartition(".")[2] == "feed_forward":
            rows = feed_forward_rows(module)
        else:
            continue
        for name, own in rows.items():
            linear = getattr(module, name)
            if isinstance(linear, nn.Linear):  # attention may have no W_o
                yield Slot(f"{path}.{name}", module, name, linear, own)


def attention_rows(attention: Attention) -> dict[str, range]:
    """Queries, keys and values in the rows of one matrix."""
    q = attention.heads * attention.head_width
    k = q + attention.key_heads * attention.head_width
    v = k + attention.key_heads * attention.head_width
    return {"q": range(q), "k": range(q, k), "v": range(k, v), "qkv": range(v)}


def feed_forward_rows(layer: nn.Module) -> dict[str, dict[str, range]]:
    """The rows of `up`, which holds gates first if the layer has them, and of `down`."""
    up, down = getattr(layer, "up", None), getattr(layer, "down", None)
    if not isinstance(up, nn.Linear) or not isinstance(down, nn.Linear):
        return {}  # a layer of one's own
    hidden, whole = down.in_features, up.out_features
    gated = {"gate": range(hidden), "up": range(hidden, whole)}
    return {
        "up": {"up": range(whole)} if whole == hidden else gated,
        "down": {"down": range(down.out_features)},
    }
