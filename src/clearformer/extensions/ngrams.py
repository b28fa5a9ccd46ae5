"""Scores of n-grams, and a transformer that adds them to the logits of its head.

A transformer from scratch learns slowly which of a million pairs of words ("not good") matter; a
linear model learns it in one epoch. Their logits are added, as in wide and deep learning (Cheng et
al. 2016), but each learns from a loss of its own.

Axes: B batch, T tokens, G n-grams, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from clearformer.core.basic import require_shape
from clearformer.core.cache import Cache
from clearformer.core.embedding import Embedding
from clearformer.core.heads import Head, SumAndCount
from clearformer.core.masks import require_attention_mask
from clearformer.core.model import Batch, Transformer
from clearformer.core.stack import Stack

# Counts of n-grams in the texts of each class, and in all other texts, to what they say: (rows, C)
Evidence = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]

PRIME = 2**31 - 1


class NgramScores(nn.Module):
    """The sum of a score of each class for every different n-gram of a text, and a bias.

    A score is scale * evidence * weight; only the weights are learned. With log-count ratios as
    evidence this is NB-SVM (Wang and Manning 2012), with the loss of a logistic regression. There
    are too many n-grams for a table, so each is hashed to one of `buckets` rows.
    """

    def __init__(
        self, longest: int, buckets: int, classes: int, scale: float = 1.0, weight: float = 0.0
    ) -> None:
        super().__init__()
        # No `nn.Embedding`, whose numbers a model's initialization would draw.
        self.evidence = nn.Parameter(torch.zeros(buckets, classes), requires_grad=False)
        self.weight = nn.Parameter(torch.full((buckets, classes), weight))
        self.bias = nn.Parameter(torch.zeros(classes))
        self.longest = longest
        self.scale = scale

    @property
    def buckets(self) -> int:
        return self.weight.shape[0]

    def places(self, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The row of each n-gram by the token that it ends with, or -1: (B, T, longest)."""
        require_shape("tokens", tokens, ("batch", "tokens"), "pass tokens[None] for one sequence")
        require_attention_mask(attention_mask, *tokens.shape)
        real = attention_mask  # (B, T)
        if real is None:
            real = torch.ones_like(tokens, dtype=torch.bool)
        own = (tokens.long() + 1) * 7_919  # the products below are too large for 32 bits
        key, there = own % PRIME, real
        rows = [torch.where(there, key % self.buckets, -1)]
        for _ in range(1, self.longest):
            # The n-gram that ends one token earlier, and this token.
            before, was_there = _shifted(key), _shifted(there)
            key, there = (before * 1_000_003 + own) % PRIME, was_there & real
            rows.append(torch.where(there, key % self.buckets, -1))
        return torch.stack(rows, dim=-1)  # (B, T, longest)

    def rows(self, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The row of each n-gram of a text, once however often it occurs; else -1: (B, G)."""
        found = self.places(tokens, attention_mask).flatten(1).sort(dim=1).values
        again = found[:, 1:] == found[:, :-1]
        return found.masked_fill(F.pad(again, (1, 0)), -1)

    def scores(self, rows: Tensor) -> Tensor:
        """The scores in these rows of the table (..., C); zeros in row -1."""
        there = (rows >= 0)[..., None]
        at = rows.clamp(min=0)
        scores = F.embedding(at, self.evidence) * F.embedding(at, self.weight)
        return self.scale * scores * there

    def forward(self, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The scores of whole texts (B, C)."""
        return self.scores(self.rows(tokens, attention_mask)).sum(dim=1) + self.bias

    def shares(self, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """What each token contributes to the score of its text, without the bias: (B, T, C).

        An n-gram's score is divided evenly among its tokens, at all of its places.
        """
        places = self.places(tokens, attention_mask)  # (B, T, longest)
        flat = places.flatten(1)
        times = (flat[:, :, None] == flat[:, None, :]).sum(-1).view_as(places)
        scores = self.scores(places) / times[..., None]  # (B, T, longest, C)
        shares = scores[:, :, 0]
        for n in range(1, self.longest):
            each = scores[:, :, n] / (n + 1)
            for back in range(min(n + 1, tokens.shape[1])):  # each of its tokens
                shares = shares + F.pad(each[:, back:], (0, 0, 0, back))
        return shares

    @torch.no_grad()
    def count(self, texts: Iterable[Batch], evidence: Evidence) -> None:
        """Set the evidence, counted in texts whose targets are classes (B,) or labels (B, C)."""
        classes = self.weight.shape[1]
        inside, outside = (torch.zeros(self.weight.shape, dtype=torch.float64) for _ in range(2))
        for batch in texts:
            rows = self.rows(batch.tokens, batch.attention_mask)  # (B, G)
            targets = batch.targets
            assert isinstance(targets, Tensor)
            if targets.dim() == 1:
                known = (targets >= 0)[:, None]  # (B, 1)
                wanted = F.one_hot(targets.clamp(min=0), classes) * known  # (B, C)
            else:
                known = targets >= 0  # (B, C)
                wanted = targets * known
            text, _ = (rows >= 0).nonzero(as_tuple=True)  # (all n-grams of the batch,)
            at = rows[rows >= 0]
            inside.index_add_(0, at, wanted[text].double())
            outside.index_add_(0, at, (known & (wanted == 0)).expand_as(wanted)[text].double())
        found = evidence(inside.numpy(), outside.numpy())
        self.evidence.copy_(torch.from_numpy(found))


class NgramTransformer(Transformer):
    """A classifier whose logits are head_weight * head + scores of n-grams."""

    head: Head

    def __init__(
        self,
        embedding: Embedding,
        stack: Stack,
        head: Head,
        ngrams: NgramScores,
        head_weight: float = 1.0,
    ) -> None:
        super().__init__(embedding, stack, head)
        self.ngrams = ngrams
        self.head_weight = head_weight

    def forward(
        self,
        tokens: Tensor,
        attention_mask: Tensor | None = None,
        segments: Tensor | None = None,
        caches: Sequence[Cache] | None = None,
    ) -> Tensor:
        logits = super().forward(tokens, attention_mask, segments, caches)
        assert isinstance(logits, Tensor)
        return self.head_weight * logits + self.ngrams(tokens, attention_mask)

    def loss(self, batch: Batch, caches: Sequence[Cache] | None = None) -> SumAndCount:
        """The mean of the losses of the two parts, each by itself.

        Trained on the sum, the head would only correct scores that explain the training texts
        already, and learn nothing that helps with other texts (docs/log.md).
        """
        mask, targets = batch.attention_mask, batch.targets
        assert isinstance(targets, Tensor)
        logits = self.head(batch.hidden(self, caches), mask)  # (B, C)
        scores = self.ngrams(batch.tokens, mask)  # (B, C)
        losses = (
            self.head.criterion(each, targets, self.head.label_smoothing)
            for each in (logits, scores)
        )
        (own, count), (theirs, _) = losses
        return (own + theirs) / 2, count


def _shifted(values: Tensor) -> Tensor:
    """The left neighbour of each position; zero before the first one."""
    return F.pad(values, (1, 0))[:, :-1]  # (B, T)
