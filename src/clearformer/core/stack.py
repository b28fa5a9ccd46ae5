"""N blocks, one after the other.

Two things alternate over the layers: the pattern (a Sparse Transformer has two) and how a block is
run (`block.Run`). A tuple of one is the usual case: every layer the same.

Axes: B batch, T tokens, K keys, E model width, N layers.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from clearformer.core.block import Run, direct
from clearformer.core.cache import NO_CACHE, Cache
from clearformer.core.masks import Mask
from clearformer.core.patterns import Full, Pattern


class Stack(nn.Module):
    """Blocks in a row, then a final norm (pre-norm stacks need one; else it does nothing)."""

    def __init__(
        self,
        blocks: Sequence[nn.Module],
        patterns: Sequence[Pattern] = (Full(),),
        norm: nn.Module | None = None,
        runs: Sequence[Run] = (direct,),
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.patterns = tuple(patterns)
        self.norm = nn.Identity() if norm is None else norm
        self.runs = tuple(runs)

    def pattern(self, layer: int) -> Pattern:
        return self.patterns[layer % len(self.patterns)]

    def forward(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        caches: Sequence[Cache] | None = None,
        structure: Pattern | None = None,
    ) -> Tensor:
        """`structure` is this batch's pattern, such as its graphs, combined with each layer's."""
        caches = _one_for_each_layer(caches, len(self.blocks))
        for layer, (block, cache) in enumerate(zip(self.blocks, caches, strict=True)):
            own = self.pattern(layer)
            mask = Mask(own if structure is None else own & structure, attention_mask)
            x = self.runs[layer % len(self.runs)](block, x, mask, cache)  # (B, T, E)
        return self.norm(x)


class DecoderStack(Stack):
    """Blocks that also look at another sequence, each through keys and values of its own."""

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        sources: Sequence[Cache],
        source_attention_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        caches: Sequence[Cache] | None = None,
    ) -> Tensor:
        caches = _one_for_each_layer(caches, len(self.blocks))
        sources = _one_for_each_layer(sources, len(self.blocks))
        source_mask = Mask(Full(), source_attention_mask)
        for layer, (block, cache, source) in enumerate(
            zip(self.blocks, caches, sources, strict=True)
        ):
            mask = Mask(self.pattern(layer), attention_mask)
            run = self.runs[layer % len(self.runs)]
            x = run(block, x, mask, cache, source_mask, source)  # (B, T, E)
        return self.norm(x)


def _one_for_each_layer(caches: Sequence[Cache] | None, layers: int) -> Sequence[Cache]:
    if caches is None:
        return [NO_CACHE] * layers
    if len(caches) != layers:
        raise ValueError(
            f"got {len(caches)} caches for {layers} layers: there must be one for each"
        )
    return caches
