"""Logits processors: functions that change logits before a token is sampled.

Each maps logits (V,) to logits (V,); an excluded token gets -inf. The first ones depend on the
text so far, the others on the distribution alone. Ties are broken by the smaller id, here and in
sampling, so that the uniform number is the only source of randomness.

Axes: V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

EXCLUDED = float("-inf")
FEW = 64  # probabilities that are usually enough


def repetition_penalty(logits: Tensor, text: Sequence[int], penalty: float) -> Tensor:
    """Divide positive logits of tokens in the text, multiply negative ones (CTRL)."""
    if not text:
        return logits
    seen = torch.tensor(sorted(set(text)))
    old = logits[seen]
    return logits.index_copy(0, seen, torch.where(old > 0, old / penalty, old * penalty))


def frequency_penalty(logits: Tensor, text: Sequence[int], penalty: float) -> Tensor:
    """Subtract the penalty for each occurrence of a token in the text."""
    counts = torch.bincount(torch.tensor(list(text), dtype=torch.long), minlength=logits.shape[0])
    return logits - penalty * counts


def exclude(logits: Tensor, ids: Sequence[int]) -> Tensor:
    """Exclude these ids."""
    return logits.index_fill(0, torch.tensor(list(ids), dtype=torch.long), EXCLUDED)


def keep_only(logits: Tensor, ids: Tensor) -> Tensor:
    """Exclude all ids but these (ids,)."""
    return torch.full_like(logits, EXCLUDED).index_copy(0, ids, logits[ids])


def scale_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Divide by the temperature: above 1 flatter, below 1 steeper."""
    # Relative to the maximum, or a tiny temperature would overflow.
    return (logits - logits.max()) / temperature


def top_k(logits: Tensor, k: int) -> Tensor:
    """Keep the k most likely tokens."""
    if k >= logits.shape[0]:
        return logits
    least = float(logits.detach().topk(k).values[-1])
    return keep_only(logits, largest(logits, k, least))


def top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the smallest set of tokens whose total probability reaches p."""
    probabilities = logits.detach().softmax(dim=0)
    shares = top_until(probabilities, p)
    count = int((shares.cumsum(0) - shares < p).sum())
    return keep_only(logits, largest(probabilities, count, float(shares[count - 1])))


def min_p(logits: Tensor, share: float) -> Tensor:
    """Keep tokens with at least `share` times the highest probability."""
    probabilities = logits.softmax(dim=0)
    return logits.masked_fill(probabilities < share * probabilities.max(), EXCLUDED)


def typical_p(logits: Tensor, p: float) -> Tensor:
    """Keep the tokens whose surprise is closest to the entropy, until they reach p in total."""
    logs = logits.log_softmax(dim=0)
    probabilities = logs.exp()
    entropy = -(probabilities * logs.masked_fill(probabilities == 0, 0.0)).sum()
    _, ids = (-logs - entropy).abs().sort(stable=True)
    shares = probabilities[ids]
    return keep_only(logits, ids[shares.cumsum(0) - shares < p])


def top_sorted(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """At least the `count` largest values in descending order, ties by id, and their ids."""
    if count >= values.shape[0]:
        return values.sort(descending=True, stable=True)
    # Values equal to the smallest one are all taken, so that their ids decide.
    least = values.topk(count).values[-1]
    ids = (values >= least).nonzero()[:, 0]
    found, order = values[ids].sort(descending=True, stable=True)
    return found, ids[order]


def largest(values: Tensor, count: int, least: float) -> Tensor:
    """The ids of the `count` largest values, of which `least` is the smallest; ties by id."""
    numbers = _as_numpy(values)  # whose search takes a fifth of the time of torch's
    above = np.flatnonzero(numbers > least)
    equal = np.flatnonzero(numbers == least)
    ids = np.concatenate((above, equal[: count - len(above)]))
    return torch.from_numpy(ids).to(values.device)


def top_until(probabilities: Tensor, reach: float) -> Tensor:
    """Probabilities in descending order until their sum exceeds `reach`.

    Sorting a whole vocabulary to use the first ten would be the slowest part of sampling. Their
    ids are left out, since sorting with ids takes twenty times as long.
    """
    if len(probabilities) > FEW:
        first = probabilities.topk(FEW).values
        if float(first.sum()) > reach:
            return first
    ordered = np.sort(_as_numpy(probabilities))[::-1].copy()
    return torch.from_numpy(ordered).to(probabilities.device)


def _as_numpy(values: Tensor) -> NDArray[Any]:
    """On the CPU, and without gradients."""
    return values.detach().cpu().numpy()
