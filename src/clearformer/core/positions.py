"""Position schemes: without one, a transformer sees a set and not a sequence.

Each scheme is one frozen value that `Embedding` and `Attention` call; yours is a dataclass derived
from `Position`. `Learned` and `Sinusoidal` add a vector to each embedding; `Rotary` and
`RelativeXL` act on the scores, so that only the distance of two tokens matters. What a scheme
learns is a module that the embedding or the attention owns. A config holds these values, so torch
is imported only inside the functions.

Axes: B batch, T tokens, Q queries, K keys, H heads, D head width, E model width.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from clearformer.core.patterns import require

if TYPE_CHECKING:
    from torch import Tensor, nn

    Parameters = nn.Module | None  # what a scheme learns, if it learns anything


class Position:
    """Base of all schemes: each hook does nothing."""

    relative = False  # whether it compares positions, which two sequences do not share

    def max_length(self, length: int) -> int | None:
        """The longest sequence of a model built for `length` tokens; None if there is no limit."""
        return None

    # --- added to the embeddings -------------------------------------------------------------

    def embedding_parameters(self, length: int, width: int) -> Parameters:
        """What the embedding learns of positions, for up to `length` tokens."""
        return None

    def added(self, positions: Tensor, width: int, learned: Parameters) -> Tensor | None:
        """Vectors (..., T, E) to add at `positions` (..., T); they are cast to the embeddings'."""
        return None

    # --- inside attention --------------------------------------------------------------------

    def attention_parameters(self, width: int, heads: int, head_width: int) -> Parameters:
        """What each attention learns of positions."""
        return None

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Transform queries or keys (B, H, T, D), linearly, by their positions (T,) or (B, T)."""
        return x

    def bias(self, heads: int, queries: int, keys: int, like: Tensor) -> Tensor | None:
        """What is added to the scaled scores, independent of the tokens: (H, Q, K)."""
        return None

    def score(self, q: Tensor, k: Tensor, learned: Parameters) -> tuple[Tensor, Tensor | None]:
        """Queries to score with, and what is added to the scaled scores, as (B, H, Q, K)."""
        return q, self.bias(q.shape[1], q.shape[2], k.shape[2], q)


@dataclass(frozen=True, kw_only=True)
class NoPosition(Position):
    """None: the input is a set."""


@dataclass(frozen=True, kw_only=True)
class Learned(Position):
    """A learned vector for each of the model's `length` positions (eq. 17)."""

    def max_length(self, length: int) -> int | None:
        return length

    def embedding_parameters(self, length: int, width: int) -> Parameters:
        from torch import nn

        return nn.ModuleDict({"table": nn.Embedding(length, width)})

    def added(self, positions: Tensor, width: int, learned: Parameters) -> Tensor | None:
        return cast("nn.ModuleDict", learned)["table"](positions)  # (..., T, E)


@dataclass(frozen=True, kw_only=True)
class Sinusoidal(Position):
    """Sines and cosines of falling frequency (eq. 18).

    "turns" alternates them along the width, as the paper writes it. "halves" has all sines, then
    all cosines, as the paper's code, Marian and Transformer-XL have it.
    """

    order: Literal["turns", "halves"] = "turns"

    def embedding_parameters(self, length: int, width: int) -> Parameters:
        if width % 2:
            raise ValueError(f"sinusoidal positions need an even width, got {width}")
        return None

    def added(self, positions: Tensor, width: int, learned: Parameters = None) -> Tensor:
        import torch

        angles = angles_of(positions, width, base=10_000.0)  # (..., T, E/2)
        if self.order == "halves":
            return torch.cat((angles.sin(), angles.cos()), dim=-1)  # (..., T, E)
        return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)  # (..., T, E)


@dataclass(frozen=True, kw_only=True)
class Rotary(Position):
    """Rotate each pair of query and key components by an angle that grows with position (eq. 19).

    The product of two rotated vectors depends on the difference of their angles alone. "halves"
    pairs component d with d + D/2, as in GPT-NeoX and Llama's converted checkpoints; "neighbours"
    pairs 2d with 2d + 1, as in the paper and Llama's own files: the same up to an order.
    """

    relative = True

    base: float = 10_000.0
    pairs: Literal["halves", "neighbours"] = "halves"
    scaling: Scaling | None = None

    def __post_init__(self) -> None:
        require(self, "base", self.base > 0, "above 0")

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        import torch

        from clearformer.core.basic import require_shape

        wanted = ("batch", "heads", "tokens", "width")
        require_shape("x", x, wanted, "pass x[None] for one sequence")
        batch, _, tokens, width = x.shape
        if width % 2:
            raise ValueError(f"rotary positions need an even head width, got {width}")
        shape = (tokens,) if positions.dim() == 1 else (batch, tokens)
        require_shape("positions", positions, shape, "give each token of x a position")
        angles = angles_of(positions, width, self.base, self.scaling)  # (T, D/2) or (B, T, D/2)
        angles = angles.unsqueeze(-3)  # one axis more, for the heads
        cosine, sine = _cast(angles.cos(), x), _cast(angles.sin(), x)
        if self.pairs == "halves":
            first, second = x.chunk(2, dim=-1)  # each (B, H, T, D/2)
        else:
            first, second = x[..., 0::2], x[..., 1::2]
        rotated = first * cosine - second * sine, second * cosine + first * sine
        if self.pairs == "halves":
            return torch.cat(rotated, dim=-1)  # (B, H, T, D)
        return torch.stack(rotated, dim=-1).flatten(-2)  # (B, H, T, D)


@dataclass(frozen=True, kw_only=True)
class RelativeXL(Position):
    """Transformer-XL: content and distance are scored apart (eq. 20).

        score_ij = (q_i + u) . k_j  +  (q_i + v) . r_(i-j)

    `content` is u, `distance` is v, and r is a projected sinusoid of the distance. The first
    product is the kernel's own, with q + u for q; the second is the bias.
    """

    relative = True

    def attention_parameters(self, width: int, heads: int, head_width: int) -> Parameters:
        import torch
        from torch import nn

        if width % 2:
            raise ValueError(f"relative positions need an even width, got {width}")
        learned = nn.Module()
        learned.project = nn.Linear(width, heads * head_width, bias=False)
        learned.content = nn.Parameter(torch.zeros(heads, head_width))  # u
        learned.distance = nn.Parameter(torch.zeros(heads, head_width))  # v
        return learned

    def score(self, q: Tensor, k: Tensor, learned: Parameters) -> tuple[Tensor, Tensor | None]:
        from clearformer.core.basic import require_shape

        assert learned is not None
        content, distance = cast("Tensor", learned.content), cast("Tensor", learned.distance)
        heads, width = content.shape
        wanted = ("batch", heads, "queries", width)
        require_shape("q", q, wanted, "pass the parameters of this attention")
        queries, keys = q.shape[-2], k.shape[-2]
        u, v = (each[:, None, :].to(q.dtype) for each in (content, distance))  # each (H, 1, D)
        r = self.distances(queries, keys, q, cast("nn.Linear", learned.project))
        by_distance = (q + v) @ r.transpose(-2, -1)
        return q + u, self.by_key(by_distance, keys)  # (B, H, Q, D), (B, H, Q, K)

    def distances(self, queries: int, keys: int, q: Tensor, project: nn.Linear) -> Tensor:
        """r / sqrt(D) of each distance i - j, from the farthest behind to the farthest ahead."""
        import torch

        first, last = self.span(queries, keys)
        every = torch.arange(first, last - 1, -1, device=q.device)
        angles = angles_of(every, project.in_features, base=10_000.0)
        waves = _cast(torch.cat((angles.sin(), angles.cos()), dim=-1), q)  # (distances, E)
        r: Tensor = project(waves).unflatten(-1, (q.shape[1], q.shape[3])).transpose(0, 1)
        # Scaled here, where it is a few rows, and not in every score.
        return r / math.sqrt(r.shape[-1])  # (H, distances, D)

    def span(self, queries: int, keys: int) -> tuple[int, int]:
        """The first and the last distance that is scored."""
        return keys - 1, 1 - queries

    def by_key(self, by_distance: Tensor, keys: int) -> Tensor:
        """Re-index the last axis from distance to key: (B, H, Q, K+Q-1) -> (B, H, Q, K).

        Row i holds its distances shifted by one place more than row i + 1. Reading the rows as
        one long line and cutting it into rows one shorter undoes that, without a copy or a loop.
        """
        queries, distances = by_distance.shape[-2:]
        if queries == 1:
            return by_distance  # one row is not shifted against any other
        line = by_distance.flatten(-2)[..., queries - 1 : queries * distances - 1]
        return line.unflatten(-1, (queries, distances - 1))[..., :keys]


@dataclass(frozen=True, kw_only=True)
class Scaling(ABC):
    """Base of all scalings of rotary angles for longer texts than in training."""

    @abstractmethod
    def scaled(self, frequencies: Tensor) -> Tensor:
        """Angles per position (D/2,), changed."""


def angles_of(positions: Tensor, width: int, base: float, scaling: Scaling | None = None) -> Tensor:
    """position / base^(2i / width) for i = 0 ... width/2 - 1: (..., T) -> (..., T, width/2).

    In float64 whatever the model's precision, and cast only once they are sines and cosines: at
    position 100,000 an angle in float32 is off by a hundredth, and bfloat16 cannot tell position
    256 from 257.
    """
    import torch

    if positions.device.type == "mps":
        positions = positions.cpu()  # Apple's GPUs have no float64
    steps = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
    frequencies = base ** (-steps / width)
    if scaling is not None:
        frequencies = scaling.scaled(frequencies)
    return positions[..., None].double() * frequencies


def _cast(waves: Tensor, like: Tensor) -> Tensor:
    """To the dtype first: the device may have no float64."""
    return waves.to(like.dtype).to(like.device)
