"""Linear probes: how well a property of a text can be read from each layer by a linear map.

Axes: S texts, T tokens, E model width, C classes, N layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.arguments import require_number
from clearformer.explore.trace import trace
from clearformer.explore.traced_model import as_traced_model
from clearformer.interpretability.metrics import Text

Pool = Literal["mean", "last", "first"]
ITERATIONS = 200


@dataclass(frozen=True)
class Probes:
    """The accuracy of a linear probe after each layer.

    Attributes:
        labels (list): The classes.
        accuracy (list of float): On held-out texts; the first entry is of the embeddings.
        majority (float): The accuracy of always saying the most frequent class.
        weights (list of Tensor): (C, E) of each probe, on standardized vectors.
        tested (int): Held-out texts.
    """

    labels: list[str | int]
    accuracy: list[float]
    majority: float
    weights: list[Tensor]
    tested: int


def linear_probes(
    model: object,
    texts: Sequence[Text],
    labels: Sequence[str | int],
    *,
    pool: Pool = "mean",
    held_out: float = 0.25,
    penalty: float = 1.0,
    seed: int = 0,
) -> Probes:
    """Fit a logistic regression on the residual stream after each layer.

    Args:
        model (Model or nn.Module): A model with one stack, or a translator's encoder.
        texts (list of texts): At least four.
        labels (list of str or int): The class of each.
        pool (str): ``"mean"`` over the tokens, the ``"last"`` or the ``"first"`` token.
        held_out (float): Share of the texts to test on. Default: 0.25.
        penalty (float): Half the squared weights times this is added to the summed loss.
        seed (int): Of the split. Default: 0.

    Returns:
        Probes: `accuracy[0]` is of the embeddings, `accuracy[n]` after n layers.
    """
    kinds = sorted(set(labels), key=str)
    _require(texts, labels, kinds, pool)
    require_number("held_out", held_out, 0.01, 0.9)
    targets = torch.tensor([kinds.index(each) for each in labels])
    states = _states(model, texts, pool)  # (N + 1, S, E)
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed))
    count = max(1, round(held_out * len(texts)))
    test, train = order[:count], order[count:]
    accuracy, weights = [], []
    for x in states:
        mean, deviation = x[train].mean(0), x[train].std(0).clamp(min=1e-6)
        x = (x - mean) / deviation
        weight, bias = logistic_regression(x[train], targets[train], len(kinds), penalty)
        guesses = (x[test] @ weight.T + bias).argmax(-1)
        accuracy.append(float((guesses == targets[test]).float().mean()))
        weights.append(weight)
    most = int(targets[train].bincount(minlength=len(kinds)).argmax())
    majority = float((targets[test] == most).float().mean())
    return Probes(list(kinds), accuracy, majority, weights, count)


def logistic_regression(
    x: Tensor, targets: Tensor, classes: int, penalty: float = 1.0
) -> tuple[Tensor, Tensor]:
    """The weights (C, E) and biases (C,) of softmax regression with an L2 penalty."""
    x = x.detach().clone().double()
    weight = torch.zeros(classes, x.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(classes, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weight, bias], max_iter=ITERATIONS, line_search_fn="strong_wolfe", tolerance_grad=1e-6
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(x @ weight.T + bias, targets, reduction="sum")
        loss = loss + penalty / 2 * weight.pow(2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return weight.detach().float(), bias.detach().float()


def _states(model: object, texts: Sequence[Text], pool: Pool) -> Tensor:
    """The pooled residual stream of each text before the first and after each layer."""
    traced = as_traced_model(model)
    part = next(iter(traced.module.stacks))
    every = []
    for text in texts:
        found = trace(traced, text, ("resid_pre", "resid_post"))
        first = found.get("resid_pre", 0, None, part)[None]
        stream = torch.cat((first, found.stacked("resid_post", part)))  # (N + 1, T, E)
        picked = {"mean": stream.mean(1), "last": stream[:, -1], "first": stream[:, 0]}[pool]
        every.append(picked.float().cpu())
    return torch.stack(every, dim=1)  # (N + 1, S, E)


def _require(
    texts: Sequence[Text], labels: Sequence[str | int], kinds: Sequence[str | int], pool: Pool
) -> None:
    if pool not in ("mean", "last", "first"):
        raise ValueError(f"pool is {pool!r}, but it must be mean, last or first")
    if isinstance(texts, str) or len(texts) != len(labels):
        raise ValueError(f"there are {len(texts)} texts and {len(labels)} labels: pass one each")
    if len(texts) < 4 or len(kinds) < 2:
        raise ValueError(
            f"there are {len(texts)} texts of {len(kinds)} classes, but a probe needs at least 4 "
            f"texts of 2 classes"
        )
