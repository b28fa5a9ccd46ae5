"""What the last hidden states are good for: the next token, a hidden token, a class of a text or
of every token.

A head gives logits, and the loss as a sum over its valid targets together with their number,
one entry for each objective; whoever trains divides, once, over the whole batch.

Axes: B batch, T tokens, E model width, P width after pooling, V vocabulary, C classes.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.core.block import Activation
from clearformer.core.masks import first_kept, last_kept, require_keep
from clearformer.core.shapes import require_shape
from clearformer.kernels.vocabulary_loss import IGNORE as IGNORE
from clearformer.kernels.vocabulary_loss import SumAndCount as SumAndCount
from clearformer.kernels.vocabulary_loss import VocabularyLoss, capped, in_chunks, require_targets
from clearformer.kernels.vocabulary_loss import cross_entropy as cross_entropy

Pool = Callable[[Tensor, Tensor | None], Tensor]


class Head(nn.Module):
    """What heads share: in training, `smoothing` of a target's probability goes to all classes."""

    smoothing: float = 0.0
    vocabulary_loss: VocabularyLoss = staticmethod(in_chunks)

    def cross_entropy(self, logits: Tensor, targets: Tensor) -> SumAndCount:
        return cross_entropy(logits, targets, self.smoothing if self.training else 0.0)

    def over_words(
        self, project: nn.Linear, rows: Tensor, targets: Tensor, cap: float | None = None
    ) -> SumAndCount:
        """The loss of rows (R, E) that `project` turns into logits, for targets (R,)."""
        smoothing = self.smoothing if self.training else 0.0
        return self.vocabulary_loss(project, rows, targets, smoothing, cap)


def set_smoothing(model: nn.Module, smoothing: float) -> None:
    """Smooth the targets of every head of a model in training."""
    for head in model.modules():
        if isinstance(head, Head):
            head.smoothing = smoothing


class NextToken(Head):
    """A score for each word of the vocabulary; `project` may share the embedding's weight.

    A `cap` keeps every logit between -cap and cap, smoothly.
    """

    def __init__(self, project: nn.Linear, cap: float | None = None) -> None:
        super().__init__()
        self.project = project
        self.cap = cap

    @property
    def token_head(self) -> nn.Module:
        return self

    def forward(self, hidden: Tensor, keep: Tensor | None = None) -> Tensor:
        return self.capped(self.project(hidden))  # (B, T, V)

    def capped(self, logits: Tensor) -> Tensor:
        """What the cap makes of logits; without one they stay as they are."""
        return capped(logits, self.cap)

    def loss(self, hidden: Tensor, targets: Tensor, keep: Tensor | None = None) -> SumAndCount:
        require_targets(targets, hidden.shape[:-1])
        rows = hidden.flatten(0, -2)  # (B*T, E)
        return self.over_words(self.project, rows, targets.flatten(), self.cap)  # eq. 23


class MaskedToken(Head):
    """BERT's: one more layer and a norm before the vocabulary."""

    def __init__(
        self, width: int, activation: Activation, norm: nn.Module, project: nn.Linear
    ) -> None:
        super().__init__()
        self.transform = nn.Linear(width, width)
        self.activation = activation
        self.norm = norm
        self.project = project

    @property
    def token_head(self) -> nn.Module:
        return self

    def forward(self, hidden: Tensor, keep: Tensor | None = None) -> Tensor:
        return self.project(self._transformed(hidden))  # (..., V)

    def _transformed(self, hidden: Tensor) -> Tensor:
        return self.norm(self.activation(self.transform(hidden)))  # (..., E)

    def loss(self, hidden: Tensor, targets: Tensor, keep: Tensor | None = None) -> SumAndCount:
        # Logits of the hidden places alone: those of the others would only be ignored.
        require_targets(targets, hidden.shape[:-1])
        places = targets != IGNORE  # (B, T)
        rows, own = _filled_up(hidden[places], targets[places])
        return self.over_words(self.project, self._transformed(rows), own)


def _filled_up(rows: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Rows without a target added, up to the next multiple of 64; a few rows stay as they are.

    Logits are large, and of another size in every step, since another number is hidden: what one
    step frees never quite fits the next, and the process grows for as long as it runs.
    """
    spare = -len(rows) % 64 if len(rows) > 64 else 0
    return F.pad(rows, (0, 0, 0, spare)), F.pad(targets, (0, spare), value=IGNORE)


def mean_pool(hidden: Tensor, keep: Tensor | None) -> Tensor:
    """The average of the real tokens (eq. 27), as in the first seed."""
    _require_sequences(hidden, keep)
    if keep is None:
        return hidden.mean(dim=1)  # (B, E)
    kept = keep[:, :, None].to(hidden.dtype)
    return (hidden * kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1)  # (B, E)


def max_pool(hidden: Tensor, keep: Tensor | None) -> Tensor:
    """The largest value of each component over the real tokens; zeros if there are none."""
    _require_sequences(hidden, keep)
    if keep is None:
        return hidden.amax(dim=1)  # (B, E)
    lowest = torch.finfo(hidden.dtype).min
    largest = hidden.masked_fill(~keep[:, :, None], lowest).amax(dim=1)  # (B, E)
    return largest.masked_fill(~keep.any(dim=1, keepdim=True), 0.0)


def mean_max_pool(hidden: Tensor, keep: Tensor | None) -> Tensor:
    """Both, side by side: what the text is like on the whole, and what stands out in it."""
    return torch.cat([mean_pool(hidden, keep), max_pool(hidden, keep)], dim=-1)  # (B, 2E)


def first_pool(hidden: Tensor, keep: Tensor | None) -> Tensor:
    """The first real token: BERT's <cls>."""
    _require_sequences(hidden, keep)
    if keep is None:
        return hidden[:, 0]  # (B, E)
    rows = torch.arange(hidden.shape[0], device=hidden.device)
    return hidden[rows, first_kept(keep)]  # (B, E)


def last_pool(hidden: Tensor, keep: Tensor | None) -> Tensor:
    """The last real token: the only one that has seen the whole text in a causal model."""
    _require_sequences(hidden, keep)
    if keep is None:
        return hidden[:, -1]  # (B, E)
    rows = torch.arange(hidden.shape[0], device=hidden.device)
    return hidden[rows, last_kept(keep)]  # (B, E)


def _require_sequences(hidden: Tensor, keep: Tensor | None) -> None:
    wanted = ("batch", "tokens", "width")
    require_shape("hidden", hidden, wanted, "pass hidden[None] for one sequence")
    if hidden.shape[1] == 0:
        raise ValueError(
            f"hidden has shape {tuple(hidden.shape)}, but a sequence of no tokens has no average, "
            f"largest or first: pass at least one token"
        )
    require_keep(keep, *hidden.shape[:2])


class Pooler(nn.Module):
    """BERT's: the first token through a layer and a tanh."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform = nn.Linear(width, width)

    def forward(self, hidden: Tensor, keep: Tensor | None) -> Tensor:
        return torch.tanh(self.transform(first_pool(hidden, keep)))  # (B, E)


class Classifier(Head):
    """One class for a whole sequence: pool to a vector of `width`, then project (eq. 27)."""

    def __init__(
        self, pool: Pool, width: int, classes: int, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__()
        self.pool = pool
        self.dropout = nn.Dropout(dropout)
        self.project = nn.Linear(width, classes, bias=bias)

    def forward(self, hidden: Tensor, keep: Tensor | None = None) -> Tensor:
        return self.project(self.dropout(self.pool(hidden, keep)))  # (B, C)

    def loss(self, hidden: Tensor, targets: Tensor, keep: Tensor | None = None) -> SumAndCount:
        return self.cross_entropy(self(hidden, keep), targets)


class TokenClassifier(Head):
    """One class for every token."""

    def __init__(self, width: int, classes: int, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.project = nn.Linear(width, classes, bias=bias)

    def forward(self, hidden: Tensor, keep: Tensor | None = None) -> Tensor:
        return self.project(self.dropout(hidden))  # (B, T, C)

    def loss(self, hidden: Tensor, targets: Tensor, keep: Tensor | None = None) -> SumAndCount:
        return self.cross_entropy(self(hidden, keep), targets)


class Features(nn.Module):
    """One vector for a whole sequence, and nothing after it: what embeddings are made of."""

    def __init__(self, pool: Pool) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, hidden: Tensor, keep: Tensor | None = None) -> Tensor:
        return self.pool(hidden, keep)  # (B, E)


class NextSentence(Classifier):
    """Does the second sentence follow the first? A classifier of two on BERT's pooled token."""

    def __init__(self, width: int) -> None:
        super().__init__(Pooler(width), width, classes=2)


class Pretraining(nn.Module):
    """BERT's two objectives on the same hidden states."""

    def __init__(self, masked: MaskedToken, sentence: NextSentence) -> None:
        super().__init__()
        self.masked = masked
        self.sentence = sentence

    @property
    def token_head(self) -> nn.Module:
        return self.masked

    def forward(self, hidden: Tensor, keep: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.masked(hidden, keep), self.sentence(hidden, keep)  # (B, T, V), (B, 2)

    def loss(
        self, hidden: Tensor, targets: tuple[Tensor, Tensor], keep: Tensor | None = None
    ) -> SumAndCount:
        sums, counts = zip(
            self.masked.loss(hidden, targets[0], keep),
            self.sentence.loss(hidden, targets[1], keep),
            strict=True,
        )
        return torch.cat(sums), torch.cat(counts)  # each (2,)
