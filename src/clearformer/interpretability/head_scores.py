"""Scores of attention heads: previous token, duplicate token, induction.

They are measured on random tokens that are repeated once, where nothing but the repetition can be
known. An induction head attends from a token to the one that followed it the first time.

Axes: N layers, H heads, T tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from clearformer.arguments import require_int
from clearformer.explore.trace import Trace, trace
from clearformer.explore.traced_model import TracedModel, as_traced_model


@dataclass(frozen=True)
class HeadScores:
    """Mean attention weights of each head (N, H), from 0 to 1.

    Attributes:
        previous (Tensor): To the token before.
        duplicate (Tensor): To the same token, the first time it appeared.
        induction (Tensor): To the token after that one.
    """

    previous: Tensor
    duplicate: Tensor
    induction: Tensor

    def rows(self) -> list[dict[str, object]]:
        """Every head, the highest induction score first."""
        layers, heads = self.induction.shape
        found: list[dict[str, object]] = [
            {
                "layer": layer,
                "head": head,
                "previous": float(self.previous[layer, head]),
                "duplicate": float(self.duplicate[layer, head]),
                "induction": float(self.induction[layer, head]),
            }
            for layer in range(layers)
            for head in range(heads)
        ]
        return sorted(found, key=lambda row: -float(str(row["induction"])))


def head_scores(
    model: object, *, length: int = 25, samples: int = 4, seed: int = 0, part: str | None = None
) -> HeadScores:
    """Score every head on random tokens, repeated once.

    Args:
        model (Model or nn.Module): The model.
        length (int): Random tokens before they are repeated. Default: 25.
        samples (int): How many such sequences. Default: 4.
        seed (int): Of the random tokens. Default: 0.
        part (str, optional): Of a translator ``"encoder"`` or ``"decoder"``.

    Returns:
        HeadScores: `previous`, `duplicate` and `induction`, each (N, H).
    """
    require_int("length", length, low=2)
    require_int("samples", samples, low=1)
    traced = as_traced_model(model)
    part = part or next(iter(traced.module.stacks))
    generator = torch.Generator().manual_seed(seed)
    ids = ordinary_ids(traced)
    found = []
    for _ in range(samples):
        once = ids[torch.randint(len(ids), (length,), generator=generator)]
        recorded = trace(traced, torch.cat((once, once)), ("weights",))
        found.append(_scores(recorded.stacked("weights", part), length))
    previous, duplicate, induction = torch.stack(found).mean(0)
    return HeadScores(previous, duplicate, induction)


def _scores(weights: Tensor, length: int) -> Tensor:
    """Three scores of weights (N, H, 2 length, 2 length): (3, N, H)."""
    if weights.shape[-2:] != (2 * length, 2 * length):
        raise ValueError(
            f"the model reads {weights.shape[-1]} tokens at once, but {2 * length} are needed: "
            f"pass length={max(1, min(weights.shape[-2:]) // 2)}"
        )
    duplicate = weights.diagonal(-length, -2, -1).mean(-1)  # (N, H)
    induction = weights.diagonal(1 - length, -2, -1)[..., 1:].mean(-1)
    return torch.stack((weights.diagonal(-1, -2, -1).mean(-1), duplicate, induction))


def previous_token_scores(trace: Trace, part: str | None = None) -> Tensor:
    """The mean weight that each head gives to the token before, on a text: (N, H)."""
    weights = trace.stacked("weights", part or trace.parts[0])
    if weights.shape[-2] != weights.shape[-1]:
        raise ValueError("a memory has keys of earlier segments: trace a shorter text")
    if weights.shape[-1] < 2:
        raise ValueError("the text has one token, which has none before it: trace a longer one")
    return weights.diagonal(-1, -2, -1).mean(-1)


def ordinary_ids(traced: TracedModel) -> Tensor:
    """Ids of the vocabulary without special tokens."""
    tables = (each for each in traced.module.modules() if isinstance(each, torch.nn.Embedding))
    special = set() if traced.tokenizer is None else set(traced.tokenizer.specials.values())
    return torch.tensor([id for id in range(next(tables).num_embeddings) if id not in special])
