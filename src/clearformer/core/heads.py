"""Heads: hidden states to logits and a loss, for tokens, masked tokens and classes.

A head gives logits, and the loss as a sum over its valid targets together with their number,
one entry for each objective; the training loop divides once, over the whole batch.

Axes: B batch, T tokens, R rows (tokens of a batch), E model width, V vocabulary, C classes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.core.basic import require_ids, require_sequences, require_shape
from clearformer.core.block import Activation
from clearformer.core.masks import first_real_token, require_attention_mask

IGNORE = -100  # the target of a position that has none

Pool = Callable[[Tensor, Tensor | None], Tensor]
SumAndCount = tuple[Tensor, Tensor]
# (logits, targets, smoothing) to a sum and a count
Criterion = Callable[[Tensor, Tensor, float], SumAndCount]
# (project, rows (R, E), targets (R,), smoothing, cap) to a sum and a count
VocabularyLoss = Callable[[nn.Linear, Tensor, Tensor, float, float | None], SumAndCount]
# (hidden (B, T, E), targets (B, T)) to the rows of which a loss is computed, and their targets
Select = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def cross_entropy(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> SumAndCount:
    """Sum of -log p(target) over the valid targets, and how many they are: each (1,).

    Logits are (..., V) and targets (...), each a class from 0 to V - 1, or IGNORE.
    """
    require_targets(targets, logits.shape[:-1])
    # In half precision a sum of many small logarithms would lose most of its digits.
    rows = at_least_float32(logits).flatten(0, -2)  # (R, V)
    with targets_explained(targets, logits.shape[-1]):
        total = F.cross_entropy(
            rows, targets.flatten(), ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing
        )
    return total[None], (targets != IGNORE).sum()[None]


def require_targets(targets: Tensor, shape: Sequence[int]) -> None:
    """A target for each place: targets of another shape could meet the wrong logits."""
    require_shape("targets", targets, shape, "give each place a target, or IGNORE")
    require_ids("targets", targets, torch.int64)


@contextmanager
def targets_explained(targets: Tensor, classes: int) -> Iterator[None]:
    """Name the target that is outside the classes when torch finds one.

    torch checks targets while it computes; checking them first would wait for the device.
    """
    try:
        yield
    except (IndexError, RuntimeError):
        valid = targets[targets != IGNORE]
        wrong = valid[(valid < 0) | (valid >= classes)].tolist()
        if not wrong:
            raise
        raise ValueError(
            f"target {wrong[0]} is outside the {classes} classes (0 to {classes - 1}), and is not "
            f"{IGNORE}, which stands for no target: was it made for another model?"
        ) from None


def at_least_float32(logits: Tensor) -> Tensor:
    """In float32, or in float64 if that is what they are."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def capped(logits: Tensor, cap: float | None) -> Tensor:
    """Every logit between -cap and cap, smoothly."""
    return logits if cap is None else cap * torch.tanh(logits / cap)


def at_once(
    project: nn.Linear, rows: Tensor, targets: Tensor, smoothing: float, cap: float | None
) -> SumAndCount:
    """Eq. 23: all logits (R, V), then their cross-entropy."""
    return cross_entropy(capped(project(rows), cap), targets, smoothing)


def with_target(hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The positions that have a target, as rows (R, E), and their targets (R,)."""
    places = targets != IGNORE  # (B, T)
    return hidden[places], targets[places]


class Head(nn.Module):
    """Base of trained heads: logits, and a loss of them."""

    smoothing: float = 0.0  # in training, this share of a target's probability goes to all classes
    criterion: Criterion = staticmethod(cross_entropy)

    @property
    def label_smoothing(self) -> float:
        return self.smoothing if self.training else 0.0

    def loss(
        self, hidden: Tensor, targets: Tensor, attention_mask: Tensor | None = None
    ) -> SumAndCount:
        return self.criterion(self(hidden, attention_mask), targets, self.label_smoothing)


class NextToken(Head):
    """A logit for each word of the vocabulary; `project` may share the embedding's weight.

    A `cap` keeps every logit between -cap and cap, smoothly.
    """

    def __init__(
        self,
        project: nn.Linear,
        cap: float | None = None,
        vocabulary_loss: VocabularyLoss = at_once,
    ) -> None:
        super().__init__()
        self.project = project
        self.cap = cap
        self.vocabulary_loss = vocabulary_loss

    @property
    def token_head(self) -> nn.Module:
        """The head that gives a logit for each word."""
        return self

    def forward(self, hidden: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return capped(self.project(hidden), self.cap)  # (B, T, V)

    def loss(
        self, hidden: Tensor, targets: Tensor, attention_mask: Tensor | None = None
    ) -> SumAndCount:
        require_targets(targets, hidden.shape[:-1])
        rows, own = hidden.flatten(0, -2), targets.flatten()  # (R, E), (R,)
        return self.vocabulary_loss(self.project, rows, own, self.label_smoothing, self.cap)


class MaskedToken(Head):
    """BERT's: one more layer and a norm before the vocabulary."""

    def __init__(
        self,
        width: int,
        activation: Activation,
        norm: nn.Module,
        project: nn.Linear,
        vocabulary_loss: VocabularyLoss = at_once,
        select: Select = with_target,
    ) -> None:
        super().__init__()
        self.transform = nn.Linear(width, width)
        self.activation = activation
        self.norm = norm
        self.project = project
        self.vocabulary_loss = vocabulary_loss
        self.select = select

    @property
    def token_head(self) -> nn.Module:
        return self

    def forward(self, hidden: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.project(self._transformed(hidden))  # (..., V)

    def _transformed(self, hidden: Tensor) -> Tensor:
        return self.norm(self.activation(self.transform(hidden)))  # (..., E)

    def loss(
        self, hidden: Tensor, targets: Tensor, attention_mask: Tensor | None = None
    ) -> SumAndCount:
        # Logits of the masked positions alone: those of the others would only be ignored.
        require_targets(targets, hidden.shape[:-1])
        rows, own = self.select(hidden, targets)  # (R, E), (R,)
        rows = self._transformed(rows)
        return self.vocabulary_loss(self.project, rows, own, self.label_smoothing, None)


def mean_pool(hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
    """The average of the real tokens (eq. 27), as in the first seed."""
    require_hidden(hidden, attention_mask)
    if attention_mask is None:
        return hidden.mean(dim=1)  # (B, E)
    kept = attention_mask[:, :, None].to(hidden.dtype)
    return (hidden * kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1)  # (B, E)


def first_pool(hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
    """The first real token: BERT's <cls>."""
    require_hidden(hidden, attention_mask)
    if attention_mask is None:
        return hidden[:, 0]  # (B, E)
    return token_at(hidden, first_real_token(attention_mask))


def token_at(hidden: Tensor, positions: Tensor) -> Tensor:
    """One token of each sequence: (B, T, E) at (B,) to (B, E)."""
    return hidden[torch.arange(hidden.shape[0], device=hidden.device), positions]


def require_hidden(hidden: Tensor, attention_mask: Tensor | None) -> None:
    """Refuse anything but a batch of hidden states, and padding of another shape."""
    require_sequences("hidden", hidden, ("batch", "tokens", "width"))
    require_attention_mask(attention_mask, *hidden.shape[:2])


class Classifier(Head):
    """One class for a whole sequence: pool to a vector of `width`, then project (eq. 27)."""

    def __init__(
        self, pool: Pool, width: int, classes: int, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__()
        self.pool = pool
        self.dropout = nn.Dropout(dropout)
        self.project = nn.Linear(width, classes, bias=bias)

    def forward(self, hidden: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.project(self.dropout(self.pool(hidden, attention_mask)))  # (B, C)
