"""A claim of the seeds: the sentence, where it stands, and the rule that judges it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

HOLDS, IN_PART, NOT_HERE = "holds", "holds here in part", "not here"
REFUTED, NOT_TRIED = "refuted", "could not be tried"
Names = Mapping[str, Any]  # the variables of a chapter that has run
Judged = tuple[str, str]  # the result in words, and the verdict


@dataclass(frozen=True)
class Claim:
    """A sentence of the seed, where it stands, and how the chapter's numbers judge it."""

    chapter: int
    text: str
    place: str
    judge: Callable[[Names], Judged]
    timed: bool = False  # the verdict depends on the machine
    since: str = "0.2.0"
    command: str | None = None  # that tries it; None: the one that runs the chapter


def verdict(*parts: bool) -> str:
    """Holds, in part, or not here: by how many parts of a claim hold."""
    return HOLDS if all(parts) else IN_PART if any(parts) else NOT_HERE


def not_tried(why: str) -> Callable[[Names], Judged]:
    """The rule of a claim that cannot be tried here."""
    return lambda names: (why, NOT_TRIED)


def span(values: Any, form: str = ".2f") -> str:
    """The smallest and the largest of several numbers; one number if they look the same."""
    low, high = f"{min(values):{form}}", f"{max(values):{form}}"
    return low if low == high else f"{low} to {high}"
