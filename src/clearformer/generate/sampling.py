"""Sampling of the next token: logits processors, then one draw.

The draw inverts the cumulative distribution: tokens are sorted by descending probability (ties by
id), and the first one whose cumulative sum exceeds a uniform number is taken. The number is
returned, so that the draw can be shown, and one seed gives one text whatever the batch.

Axes: V vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearformer.generate import logits_processors


@dataclass(frozen=True)
class SampledToken:
    """A token, its probability after all processors, and the uniform number that selected it."""

    id: int
    probability: float
    uniform: float


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Sampling settings: temperature 0 is greedy; None leaves a processor out."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float | None = None  # of tokens in the prompt or the text
    frequency_penalty: float | None = None  # for each occurrence in the text
    banned_ids: tuple[int, ...] = ()
    forced_ids: tuple[int, ...] = ()  # the first tokens of the text

    def __post_init__(self) -> None:
        # Written so that NaN fails too.
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(
                f"temperature is {self.temperature}, but it must be at least 0 (0: most likely)"
            )
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top-k is {self.top_k}, but at least 1 token must be kept")
        for name, value in (("top-p", self.top_p), ("typical-p", self.typical_p)):
            if value is not None and not 0 < value <= 1:
                raise ValueError(f"{name} is {value}, but it must be above 0 and at most 1")
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            raise ValueError(f"min-p is {self.min_p}, but it must be between 0 and 1")
        if self.repetition_penalty is not None and not 0 < self.repetition_penalty < float("inf"):
            raise ValueError(
                f"repetition-penalty is {self.repetition_penalty}, but it must be above 0 (1: none)"
            )
        if self.frequency_penalty is not None and not abs(self.frequency_penalty) < float("inf"):
            raise ValueError(
                f"frequency-penalty is {self.frequency_penalty}, but it must be a number (0: none)"
            )


def process_logits(
    logits: Tensor, sampling: Sampling, prompt: Sequence[int] = (), text: Sequence[int] = ()
) -> Tensor:
    """Apply penalties, banned and forced tokens to logits (V,)."""
    if sampling.repetition_penalty is not None:
        logits = logits_processors.repetition_penalty(
            logits.double(), [*prompt, *text], sampling.repetition_penalty
        )
    if sampling.frequency_penalty is not None:
        logits = logits_processors.frequency_penalty(
            logits.double(), text, sampling.frequency_penalty
        )
    if sampling.banned_ids:
        logits = logits_processors.exclude(logits, sampling.banned_ids)
    if len(text) < len(sampling.forced_ids):
        forced_ids = torch.tensor([sampling.forced_ids[len(text)]])
        logits = logits_processors.keep_only(
            torch.zeros_like(logits), forced_ids
        )  # also if it was excluded before
    return logits


def warp_logits(logits: Tensor, sampling: Sampling) -> Tensor:
    """Apply the temperature (above 0), top-k, top-p, min-p and typical-p to logits (V,)."""
    # Double precision, for cumulative sums over a large vocabulary.
    logits = logits_processors.scale_temperature(logits.double(), sampling.temperature)
    if sampling.top_k is not None:
        logits = logits_processors.top_k(logits, sampling.top_k)
    if sampling.top_p is not None:
        logits = logits_processors.top_p(logits, sampling.top_p)
    if sampling.min_p is not None:
        logits = logits_processors.min_p(logits, sampling.min_p)
    if sampling.typical_p is not None:
        logits = logits_processors.typical_p(logits, sampling.typical_p)
    return logits


def sample(logits: Tensor, sampling: Sampling, uniform: float) -> SampledToken:
    """Sample from processed logits (V,) with one uniform number from [0, 1)."""
    # NumPy's argmax is vectorised, and takes a tenth of the time of torch's.
    scores = logits.numpy()
    best = int(scores.argmax())  # the first of equals
    if math.isnan(scores[best]):  # NaN is the largest of all
        raise ValueError(
            "the logits of the next token are NaN: the weights are damaged, or overflow in the "
            "precision that they are loaded in"
        )
    if scores[best] == logits_processors.EXCLUDED:
        banned_ids = (
            f", {len(set(sampling.banned_ids)):,} of them by a ban" if sampling.banned_ids else ""
        )
        raise ValueError(
            f"no token is left to choose: the settings together exclude every one{banned_ids}"
        )
    if sampling.temperature == 0:
        return SampledToken(best, 1.0, uniform)
    probabilities = warp_logits(logits, sampling).softmax(dim=0)
    shares = logits_processors.top_until(probabilities, uniform)
    place = int(torch.searchsorted(shares.cumsum(0), uniform, right=True))
    place = min(place, int(shares.count_nonzero()) - 1)  # a sum may end below 1
    share = float(shares[place])
    id = logits_processors.largest(probabilities, place + 1, share)[-1]
    return SampledToken(int(id), share, uniform)


def next_token(
    logits: Tensor,
    sampling: Sampling,
    uniform: float,
    prompt: Sequence[int] = (),
    text: Sequence[int] = (),
) -> SampledToken:
    """Process a model's logits (V,) and sample with one uniform number from [0, 1)."""
    return sample(process_logits(logits.detach(), sampling, prompt, text), sampling, uniform)
