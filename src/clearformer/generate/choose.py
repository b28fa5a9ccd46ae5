"""How the next token is chosen from its logits: small functions that compose, then one draw.

The draw is by inverse cumulative sum: order the tokens by falling probability (ties by id), add
up, and take the first whose sum passes one uniform number. That number is returned, so that a
picture can show the very draw, and one seed gives one text whatever the batch.

Axes: V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Choice:
    """A token, how likely it was after all cuts, and the number that drew it."""

    id: int
    probability: float
    uniform: float


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How to choose: temperature 0 is the most likely token; None leaves a cut out."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        # Written so that NaN fails too.
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(
                f"temperature is {self.temperature}, but it must be at least 0 (0: most likely)"
            )
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top-k is {self.top_k}, but at least 1 token must be kept")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top-p is {self.top_p}, but it must be above 0 and at most 1")


def distribution(logits: Tensor, how: Sampling) -> tuple[Tensor, Tensor]:
    """Probabilities in falling order and the ids they belong to, each (V,); cut ones are zero."""
    # Double precision: a cumulative sum over 50,000 tokens must not lose the last ones.
    scores, ids = logits.double().sort(descending=True, stable=True)
    if how.temperature == 0:
        kept = torch.zeros_like(scores)
        kept[0] = 1.0
        return kept, ids
    probabilities = ((scores - scores[0]) / how.temperature).softmax(dim=0)
    if how.top_k is not None:
        probabilities[how.top_k :] = 0.0
    if how.top_p is not None:
        # The smallest set that reaches p: a token stays if those before it do not.
        before = probabilities.cumsum(0) - probabilities
        probabilities[before >= how.top_p * probabilities.sum()] = 0.0
    return probabilities / probabilities.sum(), ids


def choose(logits: Tensor, how: Sampling, uniform: float) -> Choice:
    """Draw a token from its logits (V,) with one number from [0, 1)."""
    probabilities, ids = distribution(logits, how)
    place = int(torch.searchsorted(probabilities.cumsum(0), uniform, right=True))
    place = min(place, int(probabilities.count_nonzero()) - 1)  # a sum may end below 1
    return Choice(int(ids[place]), float(probabilities[place]), uniform)
