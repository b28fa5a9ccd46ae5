"""Attention: project, place, attend, merge. The one class every architecture here uses.

Four seams, no flags: the past says where keys and values come from, the position where they
stand, the mask who may look at whom, and the kernel how scores become outputs.

Axes: B batch, T tokens, K keys, H heads, G key heads, D head width, E model width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.core.basic import require_shape
from clearformer.core.cache import NO_CACHE, Cache, FrozenKV, Heads
from clearformer.core.kernels import Kernel, fused
from clearformer.core.masks import Mask
from clearformer.core.positions import Position


class Attention(nn.Module):
    """Multi-head attention (eq. 12); grouped when there are fewer key heads than heads.

    The heads share the width out among them, unless each is told to be `per_head` wide.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        key_heads: int | None = None,
        per_head: int | None = None,
        bias: bool = True,
        output_bias: bool = True,
        position: Position | None = None,
        query_norm: nn.Module | None = None,
        key_norm: nn.Module | None = None,
        kernel: Kernel = fused,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        key_heads = heads if key_heads is None else key_heads
        if heads < 1 or key_heads < 1:
            raise ValueError(
                f"heads is {heads} and key_heads is {key_heads}, but there must be at least 1 of "
                f"each: use 1"
            )
        if per_head is None and width % heads:
            raise ValueError(
                f"width is {width} and heads is {heads}, but the heads must divide the width: "
                f"use {_nearest_divisor(width, heads)} heads"
            )
        if heads % key_heads:
            raise ValueError(
                f"heads is {heads} and key_heads is {key_heads}, but the key heads must divide "
                f"the heads: use {_nearest_divisor(heads, key_heads)} key heads"
            )
        self.width = width
        self.heads = heads
        self.key_heads = key_heads
        self.head_width = width // heads if per_head is None else per_head
        self.project = nn.Linear(width, (heads + 2 * key_heads) * self.head_width, bias=bias)
        self.output = nn.Linear(heads * self.head_width, width, bias=output_bias)
        self.position = Position() if position is None else position
        self.query_norm = nn.Identity() if query_norm is None else query_norm
        self.key_norm = nn.Identity() if key_norm is None else key_norm
        self.kernel = kernel
        self.dropout = dropout

    def forward(self, x: Tensor, mask: Mask, cache: Cache = NO_CACHE) -> Tensor:
        self._require_vectors("x", x)
        q, k, v = cache.read(x, self)  # (B, H, T, D), (B, G, K, D), (B, G, K, D)
        q, bias = self.position.score(q, k)
        y = self.kernel(q, k, v, mask, bias, self.dropout if self.training else 0.0)
        # The past may have put queries of several sequences side by side, where these share
        # their keys; with the rows of x each stands in its own again.
        width = self.heads * self.head_width
        merged = y.transpose(1, 2).reshape(*x.shape[:-1], width)  # (B, T, H*D)
        return self.output(merged)  # (B, T, E)

    def queries_keys_values(self, x: Tensor, start: int) -> Heads:
        """Eq. 4 for tokens at positions `start` and on: q, k and v in one matrix product."""
        heads = (self.heads, self.key_heads, self.key_heads)
        # Cut along the width, then into heads: the other way round costs the backward pass a
        # copy of everything, to bring the heads back behind the tokens.
        parts = self.project(x).split([count * self.head_width for count in heads], dim=-1)
        q, k, v = map(self._heads, parts)  # (B, H, T, D), (B, G, T, D), (B, G, T, D)
        positions = torch.arange(start, start + x.shape[1], device=x.device)
        q = self.position.turn(self.query_norm(q), positions)
        k = self.position.turn(self.key_norm(k), positions)
        return q, k, v

    def queries(self, x: Tensor) -> Tensor:
        """Queries alone, where the keys are another sequence's; positions do not compare."""
        rows = slice(0, self.heads * self.head_width)
        return self.query_norm(self._heads(self._project_rows(x, rows)))  # (B, H, T, D)

    def keys_values(self, x: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """Keys and values alone, of tokens at positions `start` and on."""
        rows = slice(self.heads * self.head_width, None)
        k, v = map(self._heads, self._project_rows(x, rows).chunk(2, dim=-1))  # (B, G, T, D)
        positions = torch.arange(start, start + x.shape[1], device=x.device)
        return self.position.turn(self.key_norm(k), positions), v

    def freeze(self, context: Tensor) -> FrozenKV:
        """Keys and values of another sequence (B, K, E), made once for all later queries."""
        self._require_vectors("context", context)
        if self.position.relative:
            raise ValueError(
                f"this attention has {type(self.position).__name__} positions, but places of two "
                f"sequences do not compare: build the attention across sequences without a position"
            )
        return FrozenKV(*self.keys_values(context, start=0))

    def _require_vectors(self, name: str, x: Tensor) -> None:
        wanted = ("batch", "tokens", self.width)
        require_shape(name, x, wanted, f"pass {name}[None] for one sequence")
        if x.shape[1] == 0:
            raise ValueError(
                f"{name}: the shape is {tuple(x.shape)}, but a sequence must have at least one "
                f"token: pass one"
            )

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_width)).transpose(1, 2)  # (B, heads, T, D)

    def _project_rows(self, x: Tensor, rows: slice) -> Tensor:
        bias = None if self.project.bias is None else self.project.bias[rows]
        return F.linear(x, self.project.weight[rows], bias)


def _nearest_divisor(number: int, wanted: int) -> int:
    divisors = [d for d in range(1, number + 1) if number % d == 0]
    return min(divisors, key=lambda d: abs(d - wanted))
