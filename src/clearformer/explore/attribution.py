"""Attribution of a class score to the input tokens, by three methods.

All of them start from the vectors that enter the first block. Gradient times input is the
effect of a small change. Integrated gradients average the gradient on the path from zero to the
input, so that the attributions sum to the difference of the scores. Occlusion masks one token
after the other. Scores of n-grams, if the model has them, are attributed to their tokens exactly.

Axes: B batch, T tokens, E model width, C classes, N points on the path.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearformer.core.model import Transformer
from clearformer.explore import arrays, token_display
from clearformer.explore.inputs import input_ids
from clearformer.explore.library import LoadedModel
from clearformer.explore.limits import Limits
from clearformer.explore.requests import AttributeRequest
from clearformer.explore.views import class_probabilities, label_names
from clearformer.extensions.ngrams import NgramTransformer
from clearformer.http_server.errors import bad_field, wrong_kind

BATCH = 16
# Gauss-Legendre quadrature on a part of the path.
_ROOTS, _SHARES = np.polynomial.legendre.leggauss(12)  # on (-1, 1)
NODES, WEIGHTS = (_ROOTS + 1) / 2, _SHARES / 2  # on (0, 1)
MAX_HALVINGS = 64
TOLERANCE = 0.002  # of the change of the score

Score = Callable[[Tensor, Tensor | None], Tensor]  # (B, T, E), attention_mask -> (B,)


def attribute(loaded: LoadedModel, request: AttributeRequest, limits: Limits) -> dict[str, Any]:
    """The probabilities of all classes, and the attribution of one of them to the tokens."""
    model, head = loaded.model.transformer, loaded.config.head
    if "classify" not in loaded.config.verbs:
        raise wrong_kind(f"{loaded.entry.name} is not a classifier: choose one")
    ids = input_ids(loaded, request.text, None, limits)
    tokens = torch.tensor([ids], device=loaded.model.device)
    with torch.no_grad():
        x = model.embedding(tokens)  # (1, T, E)
        logits = (_logits(model, x, None) + _ngram_scores(model, tokens, None))[0]
    names = label_names(head)
    chosen = _label(names, request.label, int(logits.argmax()))

    def score(x: Tensor, attention_mask: Tensor | None) -> Tensor:
        logits = _logits(model, x, attention_mask)  # (B, C)
        rows = tokens.expand(len(x), -1)
        return (logits + _ngram_scores(model, rows, attention_mask))[:, chosen]

    completeness = None
    ngrams = _ngram_shares(model, tokens, head.classes)[:, chosen]  # (T,)
    if request.method == "occlusion":
        values = occlusion(score, x)
    elif request.method == "grad_x_input":
        values = gradient_times_input(score, x) + ngrams
    else:
        values, total = integrated_gradients(score, x)
        values, total = values + ngrams, total + float(ngrams.sum())
        attributed = float(values.sum())
        error = abs(attributed - total) / max(abs(total), 1e-9)
        sums = {"total": total, "sum": attributed, "error": error}
        completeness = {name: arrays.number(value) for name, value in sums.items()}
    return {
        "method": request.method,
        "label": names[chosen],
        "probs": class_probabilities(loaded.config, logits),
        "tokens": token_display.tokens(loaded.model, ids),
        "values": arrays.floats(values),
        "completeness": completeness,
        "pool": pool(model, x, head.pool),
    }


def gradient_times_input(score: Score, x: Tensor) -> Tensor:
    """The linear approximation of each token's effect on the score: (T,)."""
    return (_gradients(score, x) * x)[0].sum(-1).detach()


def integrated_gradients(score: Score, x: Tensor) -> tuple[Tensor, float]:
    """The mean gradient on the path from zero to x, times x: (T,); and f(x) - f(0).

    On each part of the path the gradients must sum to the change of the score there. The part
    with the largest error is halved until they do: behind a norm nearly all of the change may
    lie within a millionth of the path.
    """
    parts = [_path_part(score, x, 0.0, 1.0)]
    total = parts[0].change
    for _ in range(MAX_HALVINGS):
        if abs(sum(part.error for part in parts)) <= TOLERANCE * abs(total):
            break
        worst = max(parts, key=lambda part: abs(part.error))
        parts.remove(worst)
        middle = (worst.start + worst.end) / 2
        parts += [_path_part(score, x, worst.start, middle),
                  _path_part(score, x, middle, worst.end)]  # fmt: skip
    return torch.stack([part.values for part in parts]).sum(0), total


@dataclass(frozen=True, eq=False)
class PathPart:
    """A part of the path from zero to x."""

    start: float
    end: float
    values: Tensor  # (T,)
    change: float  # of the score

    @property
    def error(self) -> float:
        return float(self.values.sum()) - self.change


def _path_part(score: Score, x: Tensor, start: float, end: float) -> PathPart:
    points = torch.as_tensor(start + (end - start) * NODES, dtype=x.dtype, device=x.device)  # (N,)
    weights = torch.as_tensor((end - start) * WEIGHTS, dtype=x.dtype, device=x.device)
    gradients = _gradients(score, points[:, None, None] * x)  # (N, T, E)
    values = ((weights[:, None, None] * gradients).sum(0) * x[0]).sum(-1).detach()
    with torch.no_grad():
        first, last = score(torch.cat((start * x, end * x)), None).tolist()
    return PathPart(start, end, values, last - first)


def occlusion(score: Score, x: Tensor) -> Tensor:
    """The decrease of the score when one token is masked: (T,)."""
    length = x.shape[1]
    with torch.no_grad():
        unmasked = score(x, None)[0]
        if length == 1:
            return unmasked[None] - score(torch.zeros_like(x), None)
        masks = ~torch.eye(length, dtype=torch.bool, device=x.device)
        return torch.cat(
            [unmasked - score(x.expand(len(rows), -1, -1), rows) for rows in masks.split(BATCH)]
        )


@torch.no_grad()
def pool(model: Transformer, x: Tensor, kind: str | None) -> dict[str, Any]:
    """The share of each token in the pooled vector; the shares sum to 1."""
    hidden = model.stack(x)[0]  # (T, E)
    length = hidden.shape[0]
    even = torch.full((length,), 1 / length)
    winners = hidden.argmax(0).cpu()  # the token with the maximum, for each component
    won = torch.bincount(winners, minlength=length) / len(winners)
    first = torch.eye(length)[0]
    shares = {"mean": even, "max": won, "mean_max": (even + won) / 2}.get(kind or "", first)
    return {"kind": kind, "values": arrays.floats(shares)}


def _gradients(score: Score, x: Tensor) -> Tensor:
    with torch.enable_grad():
        leaf = x.detach().clone().requires_grad_()
        return torch.autograd.grad(score(leaf, None).sum(), leaf)[0]


def _logits(model: Transformer, x: Tensor, attention_mask: Tensor | None) -> Tensor:
    logits: Tensor = model.head(model.stack(x, attention_mask), attention_mask)  # (B, C)
    return logits * model.head_weight if isinstance(model, NgramTransformer) else logits


def _ngram_scores(
    model: Transformer, tokens: Tensor, attention_mask: Tensor | None
) -> Tensor | float:
    """What n-grams add to the logits of texts (B, T): (B, C)."""
    if not isinstance(model, NgramTransformer):
        return 0.0
    with torch.no_grad():
        return model.ngrams(tokens, attention_mask)


def _ngram_shares(model: Transformer, tokens: Tensor, classes: int) -> Tensor:
    """What each token adds to the logits through n-grams: (T, C)."""
    if not isinstance(model, NgramTransformer):
        return torch.zeros(tokens.shape[1], classes, device=tokens.device)
    with torch.no_grad():
        return model.ngrams.shares(tokens)[0]


def _label(names: tuple[str, ...], label: int | str | None, best: int) -> int:
    if label is None:
        return best
    if isinstance(label, str) and label in names:
        return names.index(label)
    if isinstance(label, int) and 0 <= label < len(names):
        return label
    raise bad_field("label", f"there is no class {label!r}: there are {', '.join(names)[:200]}")
