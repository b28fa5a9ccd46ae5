"""Transformer-XL's relative scores for causal patterns, as in the paper: a third less work.

Axes: B batch, Q queries, K keys, H heads.
"""

from dataclasses import dataclass

from torch import Tensor

from clearformer.core.positions import Position, RelativeXL


# The leading underscore keeps it out of config files, which name `RelativeXL`.
@dataclass(frozen=True, kw_only=True)
class _CausalRelativeXL(RelativeXL):
    """Only for patterns within `Causal`: the scores of later keys are meaningless."""

    def span(self, queries: int, keys: int) -> tuple[int, int]:
        return keys, 0  # one more than needed, so that dropping the first Q cells shifts the rows

    def by_key(self, by_distance: Tensor, keys: int) -> Tensor:
        """(B, H, Q, K+1) -> (B, H, Q, K)."""
        queries = by_distance.shape[-2]
        return by_distance.flatten(-2)[..., queries:].unflatten(-1, (queries, keys))


def causal_form(position: Position) -> Position:
    """The fastest form of a position scheme under causal patterns."""
    return _CausalRelativeXL() if type(position) is RelativeXL else position
