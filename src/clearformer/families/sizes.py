"""Sizes of a family by name, with an error for unknown ones."""

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
