"""The plain loop that draws a text, one token at a time; all faster ways are tested equal to it.

Axes: T tokens, E model width, V vocabulary.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from clearformer.core.cache import Cache

NextLogits = Callable[[Tensor], Tensor]  # of all tokens so far (1, T): logits (V,)


def draw(logits: Tensor, uniform: float, temperature: float = 1.0, top_k: int | None = None) -> int:
    """The token that `uniform`, a number from [0, 1), picks from logits (V,).

    The tokens are ordered by falling probability (ties by id), and the first whose cumulative
    probability exceeds the number is taken. Temperature 0 takes the most likely token.
    """
    if temperature == 0:
        return int(logits.argmax())
    scores, ids = logits.double().sort(descending=True, stable=True)  # each (V,)
    shares = ((scores[:top_k] - scores[0]) / temperature).softmax(dim=0)
    place = int((shares.cumsum(dim=0) <= uniform).sum())
    return int(ids[min(place, int(shares.count_nonzero()) - 1)])  # a sum may end below 1


@torch.no_grad()
def generate(
    next_logits: NextLogits,
    prompt: Sequence[int],
    uniforms: Sequence[float],
    temperature: float = 1.0,
    top_k: int | None = None,
) -> list[int]:
    """One token after the prompt for each uniform number."""
    tokens = list(prompt)
    for uniform in uniforms:
        logits = next_logits(torch.tensor([tokens]))
        tokens.append(draw(logits, uniform, temperature, top_k))
    return tokens[len(prompt) :]


def next_logits(
    hidden: Callable[..., Tensor], head: nn.Module, caches: Sequence[Cache] = ()
) -> NextLogits:
    """Logits of a model's next token; with caches, each call reads the tokens since the last.

    `hidden` is the model's method of that name; for a `Seq2Seq`, with the source filled in:
    `partial(model.hidden, source=model.encode(source))`.
    """
    seen = 0

    def logits(tokens: Tensor) -> Tensor:
        nonlocal seen
        new = hidden(tokens[:, seen:], caches=caches or None)  # (1, T, E)
        for cache in caches:
            cache.advance()
            seen = tokens.shape[1]
        return head(new)[0, -1]  # (V,)

    return logits
