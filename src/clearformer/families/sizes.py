"""The table of a family's sizes, and what is said of a size that it does not have."""

from collections.abc import Mapping
from typing import TypeVar

from clearformer.did_you_mean import nearest

Numbers = TypeVar("Numbers")


def numbers(sizes: Mapping[str, Numbers], family: str, size: str) -> Numbers:
    """The numbers of one size of a family."""
    if size not in sizes:
        name, known = f"{family}-{size}", [f"{family}-{each}" for each in sizes]
        raise ValueError(f"there is no model {name!r}: {nearest(name, known)}")
    return sizes[size]
