"""Who may look at whom: every pattern there is.

Dense ones (`Full`, `Causal`), the sparse ones of the Sparse Transformer (`Local`, `Strided`,
`Fixed`), pictures (`Row`; a column is `Strided`), and graphs. `rules.py` says what a pattern is
and how two of them compose, `structures.py` how one differs by place, head or sequence.

Axes: Q queries, K keys, T tokens.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from clearformer.core.rules import Both, Either, Part, Pattern, Without

__all__ = [
    "Both", "Causal", "Either", "Fixed", "Full", "Graph", "Local", "Pattern", "Row", "Strided",
    "Summary", "Without",
]  # fmt: skip


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

    def most_keys(self, keys: int) -> int:
        return min(keys, 2 * self.window - 1)

    def candidates(self, queries: Tensor, keys: range) -> Tensor:
        low, high = int(queries.min()) - self.window, int(queries.max()) + self.window
        return torch.arange(max(keys.start, low + 1), min(keys.stop, high))


@dataclass(frozen=True)
class Strided(Pattern):
    """A whole number of strides away: the columns of a picture `stride` pixels wide (eq. 24)."""

    stride: int

    def __post_init__(self) -> None:
        _require_positive("Strided", "stride", self.stride)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return (query - key) % self.stride == 0

    def most_keys(self, keys: int) -> int:
        return -(-keys // self.stride)

    def label(self, queries: Tensor) -> Tensor:
        return queries % self.stride

    def candidates(self, queries: Tensor, keys: range) -> Tensor:
        first = keys.start + (torch.unique(queries % self.stride) - keys.start) % self.stride
        return _inside(first[:, None] + torch.arange(0, len(keys), self.stride), keys)


@dataclass(frozen=True)
class Row(Pattern):
    """The own row of a picture `width` pixels wide, whose columns are `Strided(width)`."""

    width: int

    def __post_init__(self) -> None:
        _require_positive("Row", "width", self.width)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return query // self.width == key // self.width

    def most_keys(self, keys: int) -> int:
        return min(keys, self.width)

    def label(self, queries: Tensor) -> Tensor:
        return queries // self.width

    def candidates(self, queries: Tensor, keys: range) -> Tensor:
        rows = torch.unique(queries // self.width)
        return _inside(rows[:, None] * self.width + torch.arange(self.width), keys)


@dataclass(frozen=True)
class Summary(Pattern):
    """The last `places` of every `stride`, whoever looks: a block's summary."""

    stride: int
    places: int

    def __post_init__(self) -> None:
        _require_positive("Summary", "stride", self.stride)
        _require_positive("Summary", "places", self.places)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return (query == query) & (key % self.stride >= self.stride - self.places)

    def most_keys(self, keys: int) -> int:
        return min(keys, self.places * -(-keys // self.stride))

    def key_label(self, keys: Tensor) -> Tensor:
        return (keys % self.stride < self.stride - self.places).long()

    def candidates(self, queries: Tensor, keys: range) -> Tensor:
        every = torch.arange(keys.start, keys.stop)
        return every[every % self.stride >= self.stride - self.places]


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
        return self._merged.allows(query, key)

    def most_keys(self, keys: int) -> int:
        return self._merged.most_keys(keys)

    def parts(self, keys: int) -> tuple[Part, ...]:
        return self._merged.parts(keys)

    @property
    def _merged(self) -> Pattern:
        return Row(self.stride) | Summary(self.stride, self.summary)


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
            if len(edge) != 2:
                raise ValueError(
                    f"Graph: edge {edge} has {len(edge)} nodes, but an edge is a pair: "
                    f"write (query, key)"
                )
            if not all(0 <= node < self.nodes for node in edge):
                raise ValueError(
                    f"Graph: edge {edge} leaves the nodes 0 to {self.nodes - 1}; "
                    f"number the nodes from 0 or raise nodes"
                )

    block = 8  # neighbours of neighbouring nodes may have little in common

    pointwise = False

    @cached_property
    def _codes(self) -> Tensor:
        """Every edge as one number, query * nodes + key, in rising order."""
        pairs = torch.tensor(self.edges, dtype=torch.long).view(-1, 2)
        return torch.unique(pairs[:, 0] * self.nodes + pairs[:, 1])

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        # Other positions (padding on either side) belong to no edge.
        inside = (query >= 0) & (key >= 0) & (query < self.nodes) & (key < self.nodes)
        codes = self._codes.to(query.device)
        return inside & torch.isin(query * self.nodes + key, codes)

    def most_keys(self, keys: int) -> int:
        return int(torch.bincount(self._codes // self.nodes, minlength=1).max())

    def candidates(self, queries: Tensor, keys: range) -> Tensor:
        mine = torch.isin(self._codes // self.nodes, queries)
        return _inside(torch.unique(self._codes[mine] % self.nodes), keys)


def _inside(positions: Tensor, keys: range) -> Tensor:
    return positions[(positions >= keys.start) & (positions < keys.stop)]


def _require_positive(pattern: str, field: str, value: int) -> None:
    if not isinstance(value, int):
        raise ValueError(f"{pattern}: {field} is {value}, but it must be a whole number")
    if value < 1:
        raise ValueError(f"{pattern}: {field} is {value}, but it must be at least 1")
