"""Who may look at whom: static rules on the positions of a query and a key.

A pattern is a value. It says for a query position and a key position whether the one may look
at the other, and knows nothing about batches or padding (that is `kernels.Mask`). Patterns
compose: `Causal() & Local(128)` looks back at most 127 places, `Local(8) | Strided(8)` is the
strided pattern of the Sparse Transformer.

Axes: Q queries, K keys, T tokens.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


class Pattern:
    """Base of all patterns: `allows` is the rule, everything else follows from it."""

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        """True where the query position may look at the key position; broadcasts."""
        raise NotImplementedError

    def table(self, queries: int, keys: int, device: torch.device | str | None = None) -> Tensor:
        """The rule for the last `queries` of `keys` positions, as a (Q, K) table of booleans.

        Suffix alignment, once and for all: queries are the *last* positions, so training,
        cached decoding, chunks and memories all follow one rule.
        """
        key = torch.arange(keys, device=device)  # (K,)
        query = torch.arange(keys - queries, keys, device=device)  # (Q,)
        return self.allows(query[:, None], key[None, :])  # (Q, K)

    def __and__(self, other: "Pattern") -> "Pattern":
        return Both(self, other)

    def __or__(self, other: "Pattern") -> "Pattern":
        return Either(self, other)

    def count(self, length: int) -> int:
        """How many (query, key) pairs are allowed in a sequence of `length` positions."""
        key = torch.arange(length)
        # A few rows at a time: the whole table of a long sequence would not fit in memory.
        rows = torch.arange(length).split(max(1, 2**24 // max(length, 1)))
        return sum(int(self.allows(query[:, None], key[None, :]).sum()) for query in rows)

    def density(self, length: int, cells: int) -> Tensor:
        """The table of a long sequence seen from afar: the share allowed in each of cells²."""
        bounds = torch.linspace(0, length, cells + 1).round().long()
        inside = torch.bucketize(torch.arange(length), bounds[1:], right=True)  # cell of each place
        key = torch.arange(length)
        rows = []
        for query in key.split((bounds[1:] - bounds[:-1]).tolist()):
            share = self.allows(query[:, None], key[None, :]).float().mean(dim=0)  # (K,)
            rows.append(torch.zeros(cells).index_add(0, inside, share))
        return torch.stack(rows) / torch.bincount(inside, minlength=cells)  # (cells, cells)

    def draw(self, length: int, cells: int = 32) -> str:
        """The table as text: a row for each query, a filled place for each key it may see.

        Past `cells` positions a place stands for several, the fuller the more of them are seen.
        """
        shades = "·░▒▓■"
        table = self.density(length, min(length, cells))
        # Rounded up: a single edge must not vanish.
        return "\n".join(
            " ".join(shades[math.ceil(4 * share)] for share in row) for row in table.tolist()
        )


@dataclass(frozen=True)
class Full(Pattern):
    """Everyone sees everyone."""

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(query.shape, key.shape)
        return torch.ones(shape, dtype=torch.bool, device=query.device)


@dataclass(frozen=True)
class Causal(Pattern):
    """Only itself and what came before (eq. 13): what makes a generator possible."""

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return key <= query


@dataclass(frozen=True)
class Local(Pattern):
    """Fewer than `window` places away, on either side; `Local(1)` sees only itself."""

    window: int

    def __post_init__(self) -> None:
        _require_positive("Local", "window", self.window)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return (query - key).abs() < self.window


@dataclass(frozen=True)
class Strided(Pattern):
    """A whole number of strides away: the columns of a picture `stride` pixels wide (eq. 24)."""

    stride: int

    def __post_init__(self) -> None:
        _require_positive("Strided", "stride", self.stride)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return (query - key) % self.stride == 0


@dataclass(frozen=True)
class Fixed(Pattern):
    """The own block of `stride` places, and the last `summary` places of every block (eq. 25).

    The summary places gather their block; everyone after it reads them.
    """

    stride: int
    summary: int

    def __post_init__(self) -> None:
        _require_positive("Fixed", "stride", self.stride)
        if not 0 < self.summary <= self.stride:
            raise ValueError(
                f"Fixed: summary is {self.summary}, but a block of stride {self.stride} "
                f"has between 1 and {self.stride} summary places"
            )

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        same_block = query // self.stride == key // self.stride
        return same_block | (key % self.stride >= self.stride - self.summary)


@dataclass(frozen=True)
class Graph(Pattern):
    """Just the listed (query, key) edges between `nodes` nodes: structure as data.

    Edges are directed, and a node sees itself only if it is told to: add `| Local(1)`.
    """

    edges: tuple[tuple[int, int], ...]
    nodes: int

    def __post_init__(self) -> None:
        _require_positive("Graph", "nodes", self.nodes)
        for edge in self.edges:
            if not all(0 <= node < self.nodes for node in edge):
                raise ValueError(
                    f"Graph: edge {edge} leaves the nodes 0 to {self.nodes - 1}; "
                    f"number the nodes from 0 or raise nodes"
                )

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        table = torch.zeros(self.nodes, self.nodes, dtype=torch.bool, device=query.device)
        if self.edges:
            pairs = torch.tensor(self.edges, device=query.device)  # (edges, 2)
            table[pairs[:, 0], pairs[:, 1]] = True
        last = self.nodes - 1  # other positions (padding on either side) belong to no edge
        inside = (query >= 0) & (key >= 0) & (query <= last) & (key <= last)
        return inside & table[query.clamp(0, last), key.clamp(0, last)]


@dataclass(frozen=True)
class Both(Pattern):
    """What two patterns both allow; written `first & second`."""

    first: Pattern
    second: Pattern

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return self.first.allows(query, key) & self.second.allows(query, key)


@dataclass(frozen=True)
class Either(Pattern):
    """What at least one of two patterns allows; written `first | second`."""

    first: Pattern
    second: Pattern

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return self.first.allows(query, key) | self.second.allows(query, key)


def reach(patterns: Sequence[Pattern], length: int) -> Tensor:
    """Which inputs can influence which outputs after one layer for each pattern: (T, T).

    The residual connection lets every position reach itself in each layer; a path may take one
    edge a layer, so layers multiply as boolean matrices (eq. 26).
    """
    reached = torch.eye(length)  # floats: there is no product of booleans
    for pattern in patterns:
        step = (pattern.table(length, length) | torch.eye(length, dtype=torch.bool)).float()
        reached = (step @ reached > 0).float()
    return reached > 0  # (T, T)


def _require_positive(pattern: str, field: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{pattern}: {field} is {value}, but it must be at least 1")
