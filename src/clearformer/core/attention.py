"""Attention: the one class that every architecture here uses.

Five parts are values that are passed in: the cache says where keys and values come from, the
position scheme where they stand, the mask who may look at whom, the kernel how scores become
outputs, and `output` what happens to the merged heads.

Axes: B batch, T tokens, K keys, H heads, G key heads, D head width, E model width.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.core.basic import require_divisor, require_sequences
from clearformer.core.cache import NO_CACHE, Cache, FrozenKV
from clearformer.core.kernels import Kernel, fused
from clearformer.core.masks import Mask
from clearformer.core.positions import NoPosition, Position


class Attention(nn.Module):
    """Multi-head attention (eq. 12); grouped when there are fewer key heads than heads.

    The heads share the width among them unless `head_width` is given. `output` makes what maps the
    merged heads (B, T, H*D) to the width: nn.Linear, or nn.Identity for attention without W_o.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        key_heads: int | None = None,
        head_width: int | None = None,
        bias: bool = True,
        output: Callable[[int, int], nn.Module] = nn.Linear,
        position: Position = NoPosition(),
        query_norm: nn.Module | None = None,
        key_norm: nn.Module | None = None,
        kernel: Kernel = fused,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        key_heads = heads if key_heads is None else key_heads
        if head_width is None:
            require_divisor("heads", heads, "width", width)
            head_width = width // heads
        require_divisor("key_heads", key_heads, "heads", heads)
        self.width = width
        self.heads = heads
        self.key_heads = key_heads
        self.head_width = head_width
        self.scheme = position
        learned = position.attention_parameters(width, heads, head_width)  # drawn first
        self.project = nn.Linear(width, (heads + 2 * key_heads) * head_width, bias=bias)
        self.output = output(heads * head_width, width)
        self.position = learned
        self.query_norm = nn.Identity() if query_norm is None else query_norm
        self.key_norm = nn.Identity() if key_norm is None else key_norm
        self.kernel = kernel
        self.dropout = dropout

    def forward(self, x: Tensor, mask: Mask, cache: Cache = NO_CACHE) -> Tensor:
        require_sequences("x", x, ("batch", "tokens", self.width))
        q, k, v = self.project_heads(x, cache.sources(x))  # (B, H, T, D), (B, G, T, D) twice
        q, k = self.rotate(q, k, end=cache.start + x.shape[1])
        k, v = cache.extend(k, v)  # (B, G, K, D), (B, G, K, D)
        q, bias = self.scheme.score(q, k, self.position)
        y = self.kernel(q, k, v, mask, bias, self.dropout if self.training else 0.0)
        merged = y.transpose(1, 2).flatten(2)  # (B, T, H*D)
        return self.output(merged)  # (B, T, E)

    def project_heads(
        self, x: Tensor, sources: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of x, keys and values of the sources (eq. 4).

        x is the last source, and q, k and v are one matrix product, unless there are no sources.
        """
        heads, width = self.heads * self.head_width, self.key_heads * self.head_width
        if not sources:
            q = self._heads(self._project_rows(x, slice(0, heads)))
            nothing = q.new_empty(len(x), self.key_heads, 0, self.head_width)
            return q, nothing, nothing
        # Cut along the width, then into heads: the other way round costs the backward pass a
        # copy of everything, to bring the heads back behind the tokens.
        q, k, v = map(self._heads, self.project(x).split([heads, width, width], dim=-1))
        if len(sources) > 1:
            old_k, old_v = self.keys_values(*sources[:-1])
            k, v = torch.cat((old_k, k), dim=2), torch.cat((old_v, v), dim=2)
        return q, k, v

    def keys_values(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values alone: (B, T, E) to (B, G, T, D), each."""
        rows = slice(self.heads * self.head_width, None)
        k, v = map(self._heads, self._project_rows(states, rows).chunk(2, dim=-1))
        return k, v

    def rotate(self, q: Tensor, k: Tensor, end: int) -> tuple[Tensor, Tensor]:
        """Norm queries and keys, and rotate them by their positions, all of which end at `end`."""
        at_q, at_k = (torch.arange(end - x.shape[2], end, device=x.device) for x in (q, k))
        q = self.scheme.rotate(self.query_norm(q), at_q)
        return q, self.scheme.rotate(self.key_norm(k), at_k)

    def freeze(self, context: Tensor) -> FrozenKV:
        """Keys and values of another sequence (B, K, E), made once for all later queries."""
        require_sequences("context", context, ("batch", "tokens", self.width))
        if self.scheme.relative:
            raise ValueError(
                f"this attention has {type(self.scheme).__name__} positions, but places of two "
                f"sequences do not compare: build the attention across sequences without a position"
            )
        k, v = self.keys_values(context)
        return FrozenKV(self.key_norm(k), v)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_width)).transpose(1, 2)  # (B, heads, T, D)

    def _project_rows(self, x: Tensor, rows: slice) -> Tensor:
        bias = None if self.project.bias is None else self.project.bias[rows]
        return F.linear(x, self.project.weight[rows], bias)
