"""The two kinds of model: one stack (`Transformer`), or an encoder and a decoder (`Seq2Seq`).

Axes: B batch, T tokens, S source tokens, K tokens with those of the cache, E model width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn

from clearformer.core.block import DecoderBlock
from clearformer.core.cache import Cache, FrozenKV
from clearformer.core.embedding import Embedding
from clearformer.core.heads import SumAndCount
from clearformer.core.patterns import Pattern
from clearformer.core.stack import DecoderStack, Stack

OneOrTwo = Tensor | tuple[Tensor, Tensor]  # two for BERT's two objectives


@dataclass(frozen=True)
class Batch:
    """What a `Transformer` learns from. Targets are token ids or classes; IGNORE = no target."""

    tokens: Tensor  # (B, T)
    targets: OneOrTwo  # (B, T), (B,), or both for BERT's two objectives
    attention_mask: Tensor | None = None  # (B, K), True = a real token; K = T without a cache
    segments: Tensor | None = None  # (B, T)

    def hidden(self, model: "Transformer", caches: Sequence[Cache] | None) -> Tensor:
        """Hidden states (B, T, E); rows that hold several texts have another way to them."""
        return model.hidden(self.tokens, self.attention_mask, self.segments, caches)


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
        attention_mask: Tensor | None = None,
        segments: Tensor | None = None,
        caches: Sequence[Cache] | None = None,
        structure: Pattern | None = None,
    ) -> Tensor:
        """Hidden states (B, T, E). `structure` is a pattern for this batch only."""
        start = caches[0].length if caches else 0
        x = self.embedding(tokens, attention_mask, segments, start)  # (B, T, E)
        return self.stack(x, attention_mask, caches, structure)

    def forward(
        self,
        tokens: Tensor,
        attention_mask: Tensor | None = None,
        segments: Tensor | None = None,
        caches: Sequence[Cache] | None = None,
    ) -> OneOrTwo:
        """Logits, in the shape that the head gives them."""
        hidden = self.hidden(tokens, attention_mask, segments, caches)
        return self.head(hidden, _own(attention_mask, tokens))

    def loss(self, batch: Batch, caches: Sequence[Cache] | None = None) -> SumAndCount:
        hidden = batch.hidden(self, caches)
        own = _own(batch.attention_mask, batch.tokens)
        return self.head.loss(hidden, batch.targets, own)  # type: ignore[operator]


@dataclass(frozen=True)
class PairBatch:
    """What a `Seq2Seq` learns from: `target` goes in, shifted; `targets` is to come out."""

    source: Tensor  # (B, S)
    target: Tensor  # (B, T)
    targets: Tensor  # (B, T)
    source_attention_mask: Tensor | None = None  # (B, S)
    target_attention_mask: Tensor | None = None  # (B, T)


@dataclass(frozen=True)
class Source:
    """An encoded sequence, as keys and values for each decoder layer."""

    caches: list[FrozenKV]
    attention_mask: Tensor | None  # (B, S)


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
        """Both stacks by the names of their parts; the last one generates."""
        return {"encoder": self.encoder, "decoder": self.decoder}

    def encode(self, source: Tensor, attention_mask: Tensor | None = None) -> Source:
        """Read the source (B, S) once; its keys and values serve every decoding step."""
        x = self.source_embedding(source, attention_mask)  # (B, S, E)
        context: Tensor = self.encoder(x, attention_mask)  # (B, S, E)
        blocks = (cast(DecoderBlock, block) for block in self.decoder.blocks)
        return Source([block.cross_attention.freeze(context) for block in blocks], attention_mask)

    def hidden(
        self,
        target: Tensor,
        source: Source,
        attention_mask: Tensor | None = None,
        caches: Sequence[Cache] | None = None,
    ) -> Tensor:
        """Hidden states (B, T, E) of the target so far, given the encoded source."""
        start = caches[0].length if caches else 0
        x = self.target_embedding(target, attention_mask, start=start)  # (B, T, E)
        return self.decoder(x, source.caches, source.attention_mask, attention_mask, caches)

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        source_attention_mask: Tensor | None = None,
        target_attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Logits (B, T, V) of what follows each target token: teacher forcing."""
        encoded = self.encode(source, source_attention_mask)
        return self.head(self.hidden(target, encoded, target_attention_mask))

    def loss(self, batch: PairBatch) -> SumAndCount:
        source = self.encode(batch.source, batch.source_attention_mask)
        hidden = self.hidden(batch.target, source, batch.target_attention_mask)
        return self.head.loss(hidden, batch.targets)  # type: ignore[operator]


def _own(attention_mask: Tensor | None, tokens: Tensor) -> Tensor | None:
    """The part of the mask (B, K) that belongs to these tokens (B, T), which come last."""
    return None if attention_mask is None else attention_mask[:, -tokens.shape[1] :]
