"""How the next token is chosen from its logits: rules, then one draw.

The draw is by inverse cumulative sum: order the tokens by falling probability (ties by id), add
up, and take the first whose sum passes one uniform number. That number is returned, so that a
picture can show the very draw, and one seed gives one text whatever the batch.

Axes: V vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearformer.generate import logits_processors


@dataclass(frozen=True)
class Choice:
    """A token, how likely it was after all rules, and the number that drew it."""

    id: int
    probability: float
    uniform: float


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How to choose: temperature 0 is the most likely token; None leaves a rule out."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical: float | None = None
    repetition: float | None = None  # of tokens that prompt or text have
    frequency: float | None = None  # for each time that the text has a token
    banned: tuple[int, ...] = ()
    forced: tuple[int, ...] = ()  # the text begins with these

    def __post_init__(self) -> None:
        # Written so that NaN fails too.
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(
                f"temperature is {self.temperature}, but it must be at least 0 (0: most likely)"
            )
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top-k is {self.top_k}, but at least 1 token must be kept")
        for name, value in (("top-p", self.top_p), ("typical", self.typical)):
            if value is not None and not 0 < value <= 1:
                raise ValueError(f"{name} is {value}, but it must be above 0 and at most 1")
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            raise ValueError(f"min-p is {self.min_p}, but it must be between 0 and 1")
        if self.repetition is not None and not 0 < self.repetition < float("inf"):
            raise ValueError(f"repetition is {self.repetition}, but it must be above 0 (1: none)")
        if self.frequency is not None and not abs(self.frequency) < float("inf"):
            raise ValueError(f"frequency is {self.frequency}, but it must be a number (0: none)")


def shaped(
    logits: Tensor, how: Sampling, prompt: Sequence[int] = (), text: Sequence[int] = ()
) -> Tensor:
    """Logits (V,) after all rules but those of chance, given the prompt and the text so far."""
    if how.repetition is not None:
        logits = logits_processors.repeated(logits.double(), [*prompt, *text], how.repetition)
    if how.frequency is not None:
        logits = logits_processors.frequent(logits.double(), text, how.frequency)
    if how.banned:
        logits = logits_processors.banned(logits, how.banned)
    if len(text) < len(how.forced):
        forced = torch.tensor([how.forced[len(text)]])
        logits = logits_processors.only(
            torch.zeros_like(logits), forced
        )  # also if a rule has cut it
    return logits


def cut(logits: Tensor, how: Sampling) -> Tensor:
    """Logits (V,) after temperature and the cuts of the tail, for a temperature above 0."""
    # Double precision: a cumulative sum over 50,000 tokens must not lose the last ones.
    logits = logits_processors.tempered(logits.double(), how.temperature)
    if how.top_k is not None:
        logits = logits_processors.top_k(logits, how.top_k)
    if how.top_p is not None:
        logits = logits_processors.top_p(logits, how.top_p)
    if how.min_p is not None:
        logits = logits_processors.min_p(logits, how.min_p)
    if how.typical is not None:
        logits = logits_processors.typical(logits, how.typical)
    return logits


def draw(logits: Tensor, how: Sampling, uniform: float) -> Choice:
    """Draw from shaped logits (V,) with one number from [0, 1)."""
    # NumPy's search compares many numbers at a time, torch's one: a tenth of the time.
    scores = logits.numpy()
    best = int(scores.argmax())  # the first of equals
    if math.isnan(scores[best]):  # NaN is the largest of all
        raise ValueError(
            "the model's scores for the next token are no numbers (NaN): its weights are damaged, "
            "or overflow in the precision that they are read in"
        )
    if scores[best] == logits_processors.CUT:
        banned = f", {len(set(how.banned)):,} of them by a ban" if how.banned else ""
        raise ValueError(
            f"no token is left to choose: the rules together exclude every one{banned}"
        )
    if how.temperature == 0:
        return Choice(best, 1.0, uniform)
    probabilities = cut(logits, how).softmax(dim=0)
    shares, ids = logits_processors.leading(probabilities, uniform)
    place = int(torch.searchsorted(shares.cumsum(0), uniform, right=True))
    place = min(place, int(shares.count_nonzero()) - 1)  # a sum may end below 1
    return Choice(int(ids[place]), float(shares[place]), uniform)


def choose(
    logits: Tensor,
    how: Sampling,
    uniform: float,
    prompt: Sequence[int] = (),
    text: Sequence[int] = (),
) -> Choice:
    """Draw a token from a model's logits (V,) with one number from [0, 1)."""
    return draw(shaped(logits.detach(), how, prompt, text), how, uniform)
