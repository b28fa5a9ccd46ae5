"""Other ways to pool a sequence, BERT's two objectives, and heads of imported checkpoints.

Axes: B batch, T tokens, E model width, V vocabulary, C classes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.core.basic import require_shape
from clearformer.core.heads import (
    IGNORE,
    Classifier,
    Head,
    MaskedToken,
    Pool,
    SumAndCount,
    at_least_float32,
    cross_entropy,
    first_pool,
    mean_pool,
    require_hidden,
    token_at,
)


def max_pool(hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
    """The largest value of each component over the real tokens; zeros if there are none."""
    require_hidden(hidden, attention_mask)
    if attention_mask is None:
        return hidden.amax(dim=1)  # (B, E)
    lowest = torch.finfo(hidden.dtype).min
    largest = hidden.masked_fill(~attention_mask[:, :, None], lowest).amax(dim=1)  # (B, E)
    return largest.masked_fill(~attention_mask.any(dim=1, keepdim=True), 0.0)


def mean_max_pool(hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Mean and maximum, concatenated."""
    pooled = mean_pool(hidden, attention_mask), max_pool(hidden, attention_mask)
    return torch.cat(pooled, dim=-1)  # (B, 2E)


def last_pool(hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
    """The last real token: the only one that has seen the whole text in a causal model."""
    require_hidden(hidden, attention_mask)
    if attention_mask is None:
        return hidden[:, -1]  # (B, E)
    return token_at(hidden, last_real_token(attention_mask))


def last_real_token(attention_mask: Tensor) -> Tensor:
    """Index of the last real token of each row (B,); the last of all if there is none."""
    return attention_mask.shape[1] - 1 - attention_mask.flip(1).int().argmax(dim=1)


class Pooler(nn.Module):
    """BERT's pooler: a linear layer and a tanh on the first token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform = nn.Linear(width, width)

    def forward(self, hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
        return torch.tanh(self.transform(first_pool(hidden, attention_mask)))  # (B, E)


class Pretraining(nn.Module):
    """BERT's two objectives on the same hidden states."""

    def __init__(self, masked: MaskedToken, sentence: Classifier) -> None:
        super().__init__()
        self.masked = masked
        self.sentence = sentence

    @property
    def token_head(self) -> nn.Module:
        return self.masked

    def forward(
        self, hidden: Tensor, attention_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        words = self.masked(hidden, attention_mask)  # (B, T, V)
        return words, self.sentence(hidden, attention_mask)  # and (B, 2)

    def loss(
        self, hidden: Tensor, targets: tuple[Tensor, Tensor], attention_mask: Tensor | None = None
    ) -> SumAndCount:
        sums, counts = zip(
            self.masked.loss(hidden, targets[0], attention_mask),
            self.sentence.loss(hidden, targets[1], attention_mask),
            strict=True,
        )
        return torch.cat(sums), torch.cat(counts)  # each (2,)


def binary_cross_entropy(
    logits: Tensor, targets: Tensor, smoothing: float = 0.0, weights: Tensor | None = None
) -> SumAndCount:
    """Sum over the valid targets (B, C), each 1, 0 or IGNORE, and how many they are: each (1,)."""
    logits = at_least_float32(logits)  # (B, C)
    require_shape("targets", targets, logits.shape, "give each label 1, 0 or IGNORE")
    valid = targets != IGNORE
    # Smoothing moves a label of 0 or 1 towards one half.
    wanted = targets.to(logits) * (1 - smoothing) + smoothing / 2
    each = F.binary_cross_entropy_with_logits(logits, wanted, weights, reduction="none")
    return each[valid].sum()[None], valid.sum()[None]


class MultiLabelClassifier(Classifier):
    """Any number of labels for a whole sequence: a logit for each, independent of the others."""

    criterion = staticmethod(binary_cross_entropy)


class Regressor(Classifier):
    """A number for a whole sequence. It learns numbers of mean 0 and standard deviation 1; what it
    gives is in their own unit."""

    def __init__(
        self,
        pool: Pool,
        width: int,
        dropout: float = 0.0,
        bias: bool = True,
        mean: float = 0.0,
        std: float = 1.0,
    ) -> None:
        super().__init__(pool, width, 1, dropout, bias)
        self.mean, self.std = mean, std

    def standardized(self, hidden: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return super().forward(hidden, attention_mask)  # (B, 1)

    def forward(self, hidden: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        standardized = at_least_float32(self.standardized(hidden, attention_mask))
        return standardized * self.std + self.mean  # (B, 1)

    def loss(
        self, hidden: Tensor, targets: Tensor, attention_mask: Tensor | None = None
    ) -> SumAndCount:
        """Squared errors; targets (B,) are standardized numbers, or IGNORE."""
        outputs = at_least_float32(self.standardized(hidden, attention_mask))[:, 0]  # (B,)
        require_shape("targets", targets, outputs.shape, "give each sequence a number, or IGNORE")
        valid = targets != IGNORE
        errors = (outputs - targets.to(outputs))[valid]
        return errors.square().sum()[None], valid.sum()[None]


class TokenClassifier(Head):
    """One class for every token."""

    def __init__(self, width: int, classes: int, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.project = nn.Linear(width, classes, bias=bias)

    def forward(self, hidden: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.project(self.dropout(hidden))  # (B, T, C)


class AnswerSpan(TokenClassifier):
    """Two scores for every token: an answer starts here, it ends here. A softmax over the tokens
    makes each of the two a distribution."""

    def __init__(self, width: int) -> None:
        super().__init__(width, classes=2)

    def loss(
        self, hidden: Tensor, targets: Tensor, attention_mask: Tensor | None = None
    ) -> SumAndCount:
        """Targets (B, 2) are the positions of the first and the last token, or IGNORE."""
        scores = self(hidden, attention_mask).transpose(1, 2)  # (B, 2, T)
        if attention_mask is not None:
            scores = scores.masked_fill(~attention_mask[:, None], float("-inf"))
        return cross_entropy(scores, targets, self.label_smoothing)


class Features(nn.Module):
    """One pooled vector for a whole sequence, without a projection."""

    def __init__(self, pool: Pool) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, hidden: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.pool(hidden, attention_mask)  # (B, E)
