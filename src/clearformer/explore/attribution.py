"""Why this class: how much each token speaks for it, by three methods.

All look at the vectors that enter the first block. The gradient times the input says what a
small change would do; integrated gradients add that up on the way from nothing to the text, so
that the parts sum to the whole; occlusion hides one token after the other and looks.

Axes: B batch, T tokens, E model width, C classes, N points on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearformer.core.model import Transformer
from clearformer.explore import arrays, token_display
from clearformer.explore.errors import bad_field, wrong_kind
from clearformer.explore.inputs import own_ids
from clearformer.explore.library import Opened
from clearformer.explore.limits import Limits
from clearformer.explore.views import label_names

TOGETHER = 16  # inputs computed side by side
STEPS = (16, 64, 256)  # points on the way; more only while the parts do not sum to the whole
CLOSE = 0.002

Score = Callable[[Tensor, Tensor | None], Tensor]  # (B, T, E), keep -> (B,)


def attribute(
    opened: Opened, text: str, method: str, label: int | str | None, limits: Limits
) -> dict[str, Any]:
    """Probabilities of all classes, and each token's part in the one that is asked about."""
    model, head = opened.subject.transformer, opened.config.head
    if "classify" not in opened.config.verbs:
        raise wrong_kind(f"{opened.entry.name} tells no classes: choose a classifier")
    ids = own_ids(opened, text, None, limits)
    tokens = torch.tensor([ids], device=opened.subject.device)
    with torch.no_grad():
        x = model.embedding(tokens)  # (1, T, E)
        logits = _logits(model, x, None)[0]
    names = label_names(head)
    chosen = _label(names, label, int(logits.argmax()))

    def score(x: Tensor, keep: Tensor | None) -> Tensor:
        return _logits(model, x, keep)[:, chosen]

    total: float | None = None
    reached: float | None = None
    if method == "occlusion":
        values = occlusion(score, x)
    elif method == "grad_x_input":
        values = gradient_times_input(score, x)
    else:
        values, total = integrated_gradients(score, x)
        reached = float(values.sum())
    shares = logits.float().softmax(-1).tolist()
    return {
        "method": method,
        "label": names[chosen],
        "probs": [{"label": n, "p": arrays.number(p)} for n, p in zip(names, shares, strict=True)],
        "tokens": token_display.tokens(opened.subject, ids),
        "values": arrays.floats(values),
        "completeness": None
        if total is None or reached is None
        else {
            "total": arrays.number(total),
            "sum": arrays.number(reached),
            "error": arrays.number(abs(reached - total) / max(abs(total), 1e-9)),
        },
        "pool": pool(model, x, head.pool),
    }


def gradient_times_input(score: Score, x: Tensor) -> Tensor:
    """What each token adds if the score were as straight as it is here: (T,)."""
    return (_gradients(score, x) * x)[0].sum(-1).detach()


def integrated_gradients(score: Score, x: Tensor) -> tuple[Tensor, float]:
    """The gradient along the way from zero to x, times x: (T,), and f(x) - f(0), their sum."""
    with torch.no_grad():
        ends = score(torch.cat((x, torch.zeros_like(x))), None)
    total = float(ends[0] - ends[1])
    values = torch.zeros(x.shape[1])
    for count in STEPS:
        places, shares = np.polynomial.legendre.leggauss(count)  # exact for smooth curves
        way = torch.as_tensor((places + 1) / 2, dtype=x.dtype, device=x.device)  # (N,)
        weight = torch.as_tensor(shares / 2, dtype=x.dtype, device=x.device)
        mean = torch.zeros_like(x[0])
        for some, own in zip(way.split(TOGETHER), weight.split(TOGETHER), strict=True):
            slopes = _gradients(score, some[:, None, None] * x)  # (N, T, E)
            mean += (own[:, None, None] * slopes).sum(0)
        values = (mean * x[0]).sum(-1).detach()
        if abs(float(values.sum()) - total) <= CLOSE * abs(total):
            break
    return values, total


def occlusion(score: Score, x: Tensor) -> Tensor:
    """By how much the score falls when nobody may look at a token: (T,)."""
    length = x.shape[1]
    with torch.no_grad():
        whole = score(x, None)[0]
        if length == 1:
            return whole[None] - score(torch.zeros_like(x), None)
        falls = []
        for some in torch.arange(length).split(TOGETHER):
            keep = torch.ones(len(some), length, dtype=torch.bool, device=x.device)
            keep[torch.arange(len(some)), some] = False
            falls.append(whole - score(x.expand(len(some), -1, -1), keep))
    return torch.cat(falls)


@torch.no_grad()
def pool(model: Transformer, x: Tensor, kind: str | None) -> dict[str, Any]:
    """How much each token counts where all become one: shares that sum to 1."""
    hidden = model.stack(x)[0]  # (T, E)
    length = hidden.shape[0]
    even = torch.full((length,), 1 / length)
    winners = hidden.argmax(0).cpu()  # of each component
    won = torch.bincount(winners, minlength=length) / len(winners)
    first = torch.zeros(length)
    first[0] = 1
    shares = {"mean": even, "max": won, "mean_max": (even + won) / 2}.get(kind or "", first)
    return {"kind": kind, "values": arrays.floats(shares)}


def _gradients(score: Score, x: Tensor) -> Tensor:
    with torch.enable_grad():
        leaf = x.detach().clone().requires_grad_()
        return torch.autograd.grad(score(leaf, None).sum(), leaf)[0]


def _logits(model: Transformer, x: Tensor, keep: Tensor | None) -> Tensor:
    return model.head(model.stack(x, keep), keep)  # (B, C)


def _label(names: tuple[str, ...], asked: int | str | None, best: int) -> int:
    if asked is None:
        return best
    if isinstance(asked, str) and asked in names:
        return names.index(asked)
    if isinstance(asked, int) and 0 <= asked < len(names):
        return asked
    raise bad_field("label", f"there is no class {asked!r}: there are {', '.join(names)[:200]}")
