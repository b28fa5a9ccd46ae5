"""What changes the logits before a token is drawn: small functions that compose.

Each takes logits (V,) and gives logits (V,); a token that is cut gets -inf. The first ones look
at the text so far, the last ones at the shape of the distribution alone. Where two tokens are
equally likely the smaller id comes first, here as in the draw, so that nothing is left to
chance but the one uniform number.

Axes: V vocabulary.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

EXCLUDED = float("-inf")


def repetition_penalty(logits: Tensor, text: Sequence[int], penalty: float) -> Tensor:
    """Divide the logits of tokens that the text has, multiply the negative ones (CTRL)."""
    if not text:
        return logits
    seen = torch.tensor(sorted(set(text)))
    old = logits[seen]
    return logits.index_copy(0, seen, torch.where(old > 0, old / penalty, old * penalty))


def frequency_penalty(logits: Tensor, text: Sequence[int], penalty: float) -> Tensor:
    """Take `penalty` off for each time that the text has the token."""
    counts = torch.bincount(torch.tensor(list(text), dtype=torch.long), minlength=logits.shape[0])
    return logits - penalty * counts


def exclude(logits: Tensor, ids: Sequence[int]) -> Tensor:
    """Never these."""
    return logits.index_fill(0, torch.tensor(list(ids), dtype=torch.long), EXCLUDED)


def keep_only(logits: Tensor, ids: Tensor) -> Tensor:
    """None but these (any number of ids)."""
    return torch.full_like(logits, EXCLUDED).index_copy(0, ids, logits[ids])


def scale_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Above 1 flatter, below 1 steeper."""
    # Against the largest, or a tiny temperature would make infinities of large logits.
    return (logits - logits.max()) / temperature


def top_k(logits: Tensor, k: int) -> Tensor:
    """The k most likely."""
    if k >= logits.shape[0]:
        return logits
    _, ids = top_sorted(logits, k)
    return keep_only(logits, ids[:k])


def top_p(logits: Tensor, p: float) -> Tensor:
    """The fewest that reach p together: a token stays if those before it do not."""
    probabilities = logits.softmax(dim=0)
    shares, ids = top_until(probabilities, p)
    return keep_only(logits, ids[shares.cumsum(0) - shares < p])


def min_p(logits: Tensor, share: float) -> Tensor:
    """Those at least `share` times as likely as the most likely."""
    probabilities = logits.softmax(dim=0)
    return logits.masked_fill(probabilities < share * probabilities.max(), EXCLUDED)


def typical_p(logits: Tensor, p: float) -> Tensor:
    """Those whose surprise is nearest the expected one, the fewest that reach p together."""
    logs = logits.log_softmax(dim=0)
    probabilities = logs.exp()
    entropy = -(probabilities * logs.masked_fill(probabilities == 0, 0.0)).sum()
    _, ids = (-logs - entropy).abs().sort(stable=True)
    shares = probabilities[ids]
    return keep_only(logits, ids[shares.cumsum(0) - shares < p])


def top_sorted(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """At least the `most` largest values, in falling order, ties by id, and their ids."""
    if count >= values.shape[0]:
        return values.sort(descending=True, stable=True)
    # The last of the largest may have equals outside; taking them all lets the ids decide.
    least = values.topk(count).values[-1]
    ids = (values >= least).nonzero()[:, 0]
    found, order = values[ids].sort(descending=True, stable=True)
    return found, ids[order]


def top_until(probabilities: Tensor, reach: float) -> tuple[Tensor, Tensor]:
    """Probabilities in falling order and their ids, so many that their sum passes `reach`.

    Sorting 50,000 tokens to look at the first ten costs more than the rest of the choice.
    """
    count = 64
    while True:
        found, ids = top_sorted(probabilities, count)
        if count >= probabilities.shape[0] or float(found.sum()) > reach:
            return found, ids
        count *= 16
