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

CUT = float("-inf")


def repeated(logits: Tensor, text: Sequence[int], penalty: float) -> Tensor:
    """Divide the logits of tokens that the text has, multiply the negative ones (CTRL)."""
    if not text:
        return logits
    seen = torch.tensor(sorted(set(text)))
    old = logits[seen]
    return logits.index_copy(0, seen, torch.where(old > 0, old / penalty, old * penalty))


def frequent(logits: Tensor, text: Sequence[int], penalty: float) -> Tensor:
    """Take `penalty` off for each time that the text has the token."""
    counts = torch.bincount(torch.tensor(list(text), dtype=torch.long), minlength=logits.shape[0])
    return logits - penalty * counts


def banned(logits: Tensor, ids: Sequence[int]) -> Tensor:
    """Never these."""
    return logits.index_fill(0, torch.tensor(list(ids), dtype=torch.long), CUT)


def only(logits: Tensor, ids: Tensor) -> Tensor:
    """None but these (any number of ids)."""
    return torch.full_like(logits, CUT).index_copy(0, ids, logits[ids])


def tempered(logits: Tensor, temperature: float) -> Tensor:
    """Above 1 flatter, below 1 steeper."""
    # Against the largest, or a tiny temperature would make infinities of large logits.
    return (logits - logits.max()) / temperature


def top_k(logits: Tensor, k: int) -> Tensor:
    """The k most likely."""
    if k >= logits.shape[0]:
        return logits
    _, ids = falling(logits, k)
    return only(logits, ids[:k])


def top_p(logits: Tensor, p: float) -> Tensor:
    """The fewest that reach p together: a token stays if those before it do not."""
    probabilities = logits.softmax(dim=0)
    shares, ids = leading(probabilities, p)
    return only(logits, ids[shares.cumsum(0) - shares < p])


def min_p(logits: Tensor, share: float) -> Tensor:
    """Those at least `share` times as likely as the most likely."""
    probabilities = logits.softmax(dim=0)
    return logits.masked_fill(probabilities < share * probabilities.max(), CUT)


def typical(logits: Tensor, p: float) -> Tensor:
    """Those whose surprise is nearest the expected one, the fewest that reach p together."""
    logs = logits.log_softmax(dim=0)
    probabilities = logs.exp()
    entropy = -(probabilities * logs.masked_fill(probabilities == 0, 0.0)).sum()
    _, ids = (-logs - entropy).abs().sort(stable=True)
    shares = probabilities[ids]
    return only(logits, ids[shares.cumsum(0) - shares < p])


def falling(values: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """At least the `most` largest values, in falling order, ties by id, and their ids."""
    if most >= values.shape[0]:
        return values.sort(descending=True, stable=True)
    # The last of the largest may have equals outside; taking them all lets the ids decide.
    least = values.topk(most).values[-1]
    ids = (values >= least).nonzero()[:, 0]
    found, order = values[ids].sort(descending=True, stable=True)
    return found, ids[order]


def leading(probabilities: Tensor, reach: float) -> tuple[Tensor, Tensor]:
    """Probabilities in falling order and their ids, so many that their sum passes `reach`.

    Sorting 50,000 tokens to look at the first ten costs more than the rest of the choice.
    """
    most = 64
    while True:
        found, ids = falling(probabilities, most)
        if most >= probabilities.shape[0] or float(found.sum()) > reach:
            return found, ids
        most *= 16
