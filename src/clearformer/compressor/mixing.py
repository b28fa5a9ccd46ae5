"""A mixture of a model's predictions with those of counts, learned while coding.

The logits of the mixture are a weighted sum of log probabilities: the model's and those of each
order of `Counts` (geometric mixing; Mattern 2013). After each token the weights take a step of
gradient descent on its bits, the same on both sides.

Axes: S streams, V vocabulary, N orders and the model.
"""

from __future__ import annotations

import torch
from torch import Tensor

from clearformer.compressor.counts import SETS, Counts
from clearformer.inference.entropy_coder import Ids, Predictor

RATE = 5e-4
MIN_LOG = -30.0  # of a probability: minus infinity times a weight of zero is NaN
MAX_WEIGHT = 4.0
UNTRAINED = 0.3  # initial weight of a model or an order that has learned nothing yet


class Mixture:
    """Weights of a model and of counts; `__call__` learns from tokens, then mixes logits."""

    def __init__(self, orders: int, streams: int, vocabulary: int, trained: bool) -> None:
        self.counts = Counts(orders, streams, vocabulary)
        first = [*[0.0] * orders, 1.0] if trained else [UNTRAINED] * (orders + 1)
        # A weight is the sum of two: one for the confidence of the counts, one for the last token.
        self.by_confidence = torch.tensor(first, dtype=torch.float64).repeat(SETS, 1)
        self.by_token = torch.zeros(vocabulary, orders + 1, dtype=torch.float64)
        self.logs: Tensor | None = None

    def __call__(self, tokens: Ids, logits: Tensor) -> Tensor:
        """The logits (S, V) after `tokens` (S,), where the model alone has `logits`."""
        last = torch.from_numpy(tokens.copy())  # the array may change before the next call
        if self.logs is not None:
            self._learn(self.logs, last)
        self.counts.update(tokens)
        counted = torch.from_numpy(self.counts.probabilities()).log()
        model = logits.double().log_softmax(dim=-1).clamp(min=MIN_LOG)
        self.logs = torch.cat((counted, model[None]))  # (N, S, V)
        self.sets = torch.from_numpy(self.counts.confidence), last
        weights = self.by_confidence[self.sets[0]] + self.by_token[self.sets[1]]  # (S, N)
        weights.clamp_(-MAX_WEIGHT, MAX_WEIGHT)
        self.mixed = (weights.T[..., None] * self.logs).sum(dim=0)  # (S, V)
        return self.mixed

    def _learn(self, logs: Tensor, tokens: Tensor) -> None:
        expected = (self.mixed.softmax(dim=-1) * logs).sum(dim=-1)  # (N, S)
        found = logs[:, torch.arange(len(tokens)), tokens]
        step = RATE * (found - expected).T  # (S, N)
        self.by_confidence.index_add_(0, self.sets[0], step)
        self.by_token.index_add_(0, self.sets[1], step)


class MixedPredictor:
    """A predictor whose logits are mixed with counts."""

    def __init__(self, predictor: Predictor, mixture: Mixture) -> None:
        self.predictor, self.mixture = predictor, mixture

    def read(self, tokens: Ids) -> Tensor:
        return self.mixture(tokens, self.predictor.read(tokens))
