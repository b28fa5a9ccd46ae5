"""Where a token stands: without this file a transformer sees a set, not a sequence.

Two places to say it. `Learned`, `Sinusoidal` and `Grid` (a picture) are added to the embeddings.
`Rotary`, `RelativeXL` and `ALiBi` act inside attention, on the scores, so that only the
distance between two tokens matters; each is a `Position`.

Axes: B batch, T tokens, Q queries, K keys, H heads, D head width, E model width.
"""

import math

import torch
from torch import Tensor, nn

from clearformer.core.angles import Frequencies as Frequencies
from clearformer.core.angles import Waves as Waves
from clearformer.core.angles import angles_of, cast
from clearformer.core.angles import in_halves as in_halves
from clearformer.core.angles import slower as slower
from clearformer.core.angles import slower_below as slower_below
from clearformer.core.angles import taking_turns as taking_turns
from clearformer.core.angles import unchanged as unchanged
from clearformer.core.basic import require_ids, require_shape


class Learned(nn.Module):
    """A vector for each position, learned like a word's (eq. 17)."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(length, width)

    def forward(self, positions: Tensor, end: int) -> Tensor:
        """Vectors for `positions`, all below `end`: (..., T) -> (..., T, E)."""
        # `end` is known without reading the tensor, which would wait for the device.
        if end > self.table.num_embeddings:
            raise ValueError(
                f"the sequence has {end} tokens, but the learned positions end at "
                f"{self.table.num_embeddings}: shorten it, or build the model with length={end}"
            )
        require_ids("positions", positions)
        return self.table(positions)  # (..., T, E)


class Sinusoidal(nn.Module):
    """Sines and cosines of falling frequency, taking turns along the width (eq. 18)."""

    def __init__(self, width: int, order: Waves = taking_turns) -> None:
        super().__init__()
        if width % 2:
            raise ValueError(f"sinusoidal positions need an even width, got {width}")
        self.width = width
        self.order = order

    def forward(self, positions: Tensor, end: int) -> Tensor:
        """Vectors for `positions`, of any size: (..., T) -> (..., T, E).

        They are float64 (on the CPU where a device has no float64): whoever adds them to
        something casts them to its dtype.
        """
        angles = angles_of(positions, self.width, base=10_000.0)  # (..., T, E/2)
        return self.order(angles.sin(), angles.cos())  # (..., T, E)


class Grid(nn.Module):
    """A vector for each row and one for each column of a picture, read line by line."""

    def __init__(self, rows: int, columns: int, width: int) -> None:
        super().__init__()
        self.row = nn.Embedding(rows, width)
        self.column = nn.Embedding(columns, width)

    def forward(self, positions: Tensor, end: int) -> Tensor:
        """Vectors for `positions`, all below `end`: (..., T) -> (..., T, E)."""
        columns = self.column.num_embeddings
        if end > self.row.num_embeddings * columns:
            raise ValueError(
                f"the sequence has {end} tokens, but the grid has {self.row.num_embeddings} rows "
                f"of {columns}: shorten it, or build the model with length={end}"
            )
        require_ids("positions", positions)
        return self.row(positions // columns) + self.column(positions % columns)  # (..., T, E)


class Position(nn.Module):
    """A position scheme inside attention; this one does nothing (a set, not a sequence)."""

    relative = False  # whether it compares places, which those of two sequences do not

    def turn(self, x: Tensor, positions: Tensor) -> Tensor:
        """Change fresh queries or keys (B, H, T, D) by their positions, before caching.

        The positions are (T,), the same for all sequences, or (B, T).
        """
        return x

    def score(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor | None]:
        """Queries to score with, and what is added to the scaled scores, as (B, H, Q, K)."""
        return q, None


class Rotary(Position):
    """Turn each pair of query and key components by an angle that grows with position (eq. 19).

    A product of two turned vectors depends on the difference of their angles alone. Component
    d is paired with d + D/2, as in GPT-NeoX and Llama's converted checkpoints.
    """

    relative = True

    def __init__(self, base: float = 10_000.0, change: Frequencies = unchanged) -> None:
        super().__init__()
        self.base = base
        self.change = change

    def turn(self, x: Tensor, positions: Tensor) -> Tensor:
        require_shape(
            "x", x, ("batch", "heads", "tokens", "width"), "pass x[None] for one sequence"
        )
        batch, _, tokens, width = x.shape
        if width % 2:
            raise ValueError(f"rotary positions need an even head width, got {width}")
        whole = (tokens,) if positions.dim() == 1 else (batch, tokens)
        require_shape("positions", positions, whole, "give each token of x a position")
        angles = angles_of(positions, width, self.base, self.change)  # (T, D/2) or (B, T, D/2)
        angles = angles.unsqueeze(-3)  # one axis more, for the heads
        cosine, sine = cast(angles.cos(), x), cast(angles.sin(), x)
        first, second = self.split(x)  # each (B, H, T, D/2)
        return self.join(first * cosine - second * sine, second * cosine + first * sine)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The first and the second component of each pair."""
        first, second = x.chunk(2, dim=-1)
        return first, second

    def join(self, first: Tensor, second: Tensor) -> Tensor:
        return torch.cat((first, second), dim=-1)  # (B, H, T, D)


class NeighbourRotary(Rotary):
    """Component 2d is paired with 2d + 1, as the original text and Llama's own files have it:
    the same as `Rotary` up to the order of the components.
    """

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[..., 0::2], x[..., 1::2]

    def join(self, first: Tensor, second: Tensor) -> Tensor:
        return torch.stack((first, second), dim=-1).flatten(-2)  # (B, H, T, D)


class RelativeXL(Position):
    """Transformer-XL: content and distance are scored apart (eq. 20).

        score_ij = (q_i + u) . k_j  +  (q_i + v) . r_(i-j)

    `content` is u, `distance` is v, and r is a projected sinusoid of the distance. The first
    product is the kernel's own, with q + u for q; the second is the bias.
    """

    relative = True

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % 2:
            raise ValueError(f"relative positions need an even width, got {width}")
        if width % heads:
            raise ValueError(
                f"width is {width} and heads is {heads}, but the heads of relative positions must "
                f"divide the width: use those of the attention"
            )
        self.width = width
        self.project = nn.Linear(width, width, bias=False)
        self.content = nn.Parameter(torch.zeros(heads, width // heads))  # u
        self.distance = nn.Parameter(torch.zeros(heads, width // heads))  # v

    def score(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor | None]:
        heads, width = self.content.shape
        require_shape(
            "q",
            q,
            ("batch", heads, "queries", width),
            "build RelativeXL with the attention's heads",
        )
        queries, keys = q.shape[-2], k.shape[-2]
        u, v = (each[:, None, :].to(q.dtype) for each in (self.content, self.distance))  # (H, 1, D)
        by_distance = (q + v) @ self.distances(queries, keys, q).transpose(-2, -1)
        return q + u, self.by_key(by_distance, keys)  # (B, H, Q, D), (B, H, Q, K)

    def distances(self, queries: int, keys: int, like: Tensor) -> Tensor:
        """r / sqrt(D) of each distance i - j, from the farthest behind to the farthest ahead."""
        first, last = self.span(queries, keys)
        angles = angles_of(torch.arange(first, last - 1, -1, device=like.device), self.width, 1e4)
        waves = cast(in_halves(angles.sin(), angles.cos()), like)  # (distances, E)
        r = self.project(waves).unflatten(-1, self.distance.shape).transpose(0, 1)
        # Scaled here, where it is a few rows, and not in every score.
        return r / math.sqrt(r.shape[-1])  # (H, distances, D)

    def span(self, queries: int, keys: int) -> tuple[int, int]:
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


class RelativeBehind(RelativeXL):
    """The same where nobody looks ahead, as the paper has it: a third less to compute.

    Only for patterns within `Causal`: what is added to the score of a later key has no meaning.
    """

    def span(self, queries: int, keys: int) -> tuple[int, int]:
        return keys, 0  # one more than there is, so that cutting the line shifts by itself

    def by_key(self, by_distance: Tensor, keys: int) -> Tensor:
        queries = by_distance.shape[-2]
        return by_distance.flatten(-2)[..., queries:].unflatten(-1, (queries, keys))


class ALiBi(Position):
    """A penalty that grows with distance, at a rate of its own for each head (eq. 21)."""

    relative = True

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.slopes = alibi_slopes(heads)

    def score(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor | None]:
        queries, keys = q.shape[-2], k.shape[-2]
        key = torch.arange(keys, device=q.device)
        query = torch.arange(keys - queries, keys, device=q.device)
        distance = (query[:, None] - key[None, :]).abs()  # (Q, K)
        # At least float32, and cast last: bfloat16 cannot tell distance 256 from 257.
        precision = torch.promote_types(q.dtype, torch.float32)
        slopes = torch.tensor(self.slopes, dtype=precision, device=q.device)
        return q, (-slopes[:, None, None] * distance).to(q.dtype)  # (H, Q, K)


def alibi_slopes(heads: int) -> tuple[float, ...]:
    """Falling powers of two; between two powers of two, every other slope of the next one."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    finer = [2.0 ** (-4.0 * (i + 1) / power) for i in range(0, 2 * power, 2)]
    return tuple(slopes + finer[: heads - power])
