"""The two models there are, by shape of computation: one stack, or two.

Every architecture of the seeds is a `Transformer` or a `Seq2Seq` with other parts put in.

Axes: B batch, T tokens, S source tokens, K tokens with those of the cache, E model width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from clearformer.core.block import DecoderBlock
from clearformer.core.cache import Cache, FrozenKV
from clearformer.core.embedding import Embedding
from clearformer.core.heads import SumAndCount
from clearformer.core.patterns import Pattern
from clearformer.core.stack import DecoderStack, Stack


@dataclass(frozen=True)
class Batch:
    """What a `Transformer` learns from. Targets are token ids or classes; IGNORE = no target."""

    tokens: Tensor  # (B, T)
    targets: Any  # (B, T), (B,), or both for BERT's two objectives
    keep: Tensor | None = None  # (B, K), True = a real token; K = T without a cache
    segments: Tensor | None = None  # (B, T)


class Transformer(nn.Module):
    """Tokens in, logits out: embedding, stack, head."""

    def __init__(self, embedding: Embedding, stack: Stack, head: nn.Module) -> None:
        super().__init__()
        self.embedding = embedding
        self.stack = stack
        self.head = head

    @property
    def stacks(self) -> dict[str, Stack]:
        """The stack, by the name of its part."""
        return {"self": self.stack}

    def hidden(
        self,
        tokens: Tensor,
        keep: Tensor | None = None,
        segments: Tensor | None = None,
        caches: Sequence[Cache] | None = None,
        structure: Pattern | None = None,
    ) -> Tensor:
        """Hidden states (B, T, E) of `tokens` (B, T); keep is (B, K), cache included.

        `structure` says who may look at whom in this very batch, such as its graphs.
        """
        start = caches[0].length if caches else 0
        x = self.embedding(tokens, keep, segments, start)  # (B, T, E)
        return self.stack(x, keep, caches, structure)

    def forward(
        self,
        tokens: Tensor,
        keep: Tensor | None = None,
        segments: Tensor | None = None,
        caches: Sequence[Cache] | None = None,
    ) -> Any:
        """Logits, whatever their shape: it is the head's."""
        hidden = self.hidden(tokens, keep, segments, caches)
        return self.head(hidden, _own(keep, tokens))

    def loss(self, batch: Batch, caches: Sequence[Cache] | None = None) -> SumAndCount:
        hidden = self.hidden(batch.tokens, batch.keep, batch.segments, caches)
        own = _own(batch.keep, batch.tokens)
        return self.head.loss(hidden, batch.targets, own)  # type: ignore[operator]


@dataclass(frozen=True)
class PairBatch:
    """What a `Seq2Seq` learns from: `target` goes in, shifted; `targets` is to come out."""

    source: Tensor  # (B, S)
    target: Tensor  # (B, T)
    targets: Tensor  # (B, T)
    source_keep: Tensor | None = None  # (B, S)
    target_keep: Tensor | None = None  # (B, T)


@dataclass(frozen=True)
class Source:
    """An encoded sequence, as each decoder layer will look at it."""

    caches: list[FrozenKV]
    keep: Tensor | None  # (B, S)


class Seq2Seq(nn.Module):
    """Encoder and decoder: the decoder sees its own target so far and all of the encoded source."""

    def __init__(
        self,
        source_embedding: Embedding,
        encoder: Stack,
        target_embedding: Embedding,
        decoder: DecoderStack,
        head: nn.Module,
    ) -> None:
        super().__init__()
        self.source_embedding = source_embedding
        self.encoder = encoder
        self.target_embedding = target_embedding
        self.decoder = decoder
        self.head = head

    @property
    def stacks(self) -> dict[str, Stack | DecoderStack]:
        """Both stacks by the names of their parts; the last one writes."""
        return {"encoder": self.encoder, "decoder": self.decoder}

    def encode(self, source: Tensor, keep: Tensor | None = None) -> Source:
        """Read the source (B, S) once; its keys and values serve every decoding step."""
        context: Tensor = self.encoder(self.source_embedding(source, keep), keep)  # (B, S, E)
        caches = [_cross_attention(block).freeze(context) for block in self.decoder.blocks]
        return Source(caches, keep)

    def hidden(
        self,
        target: Tensor,
        source: Source,
        keep: Tensor | None = None,
        caches: Sequence[Cache] | None = None,
    ) -> Tensor:
        """Hidden states (B, T, E) of the target so far, given the encoded source."""
        start = caches[0].length if caches else 0
        x = self.target_embedding(target, keep, start=start)  # (B, T, E)
        return self.decoder(x, source.caches, source.keep, keep, caches)

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        source_keep: Tensor | None = None,
        target_keep: Tensor | None = None,
    ) -> Tensor:
        """Logits (B, T, V) of what follows each target token: teacher forcing."""
        hidden = self.hidden(target, self.encode(source, source_keep), target_keep)
        return self.head(hidden)

    def loss(self, batch: PairBatch) -> SumAndCount:
        source = self.encode(batch.source, batch.source_keep)
        hidden = self.hidden(batch.target, source, batch.target_keep)
        return self.head.loss(hidden, batch.targets)  # type: ignore[operator]


def _own(keep: Tensor | None, tokens: Tensor) -> Tensor | None:
    """The part of keep (B, K) that belongs to the tokens at hand (B, T), which come last."""
    return None if keep is None else keep[:, -tokens.shape[1] :]


def _cross_attention(block: nn.Module) -> Any:
    assert isinstance(block, DecoderBlock)
    return block.cross_attention
