"""The steps of the explorer's course: their ids, pages and addresses.

The steps follow the order of the post. The page is built from the same file as this list.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from clearformer.did_you_mean import closest


@dataclass(frozen=True)
class Step:
    """One step: the page that it opens, and what it sets there."""

    id: str
    section: str
    view: str
    where: Mapping[str, Any] = field(default_factory=dict)  # the part of the page
    set: Mapping[str, Any] = field(default_factory=dict)  # what the reader may change there
    lit: str | None = None  # the panel that the step speaks of
    beside: Sequence[str] = ()  # panels that are presented with it
    formula: str | None = None
    post: str | None = None  # the formula of a model that normalizes after each part
    code: str | None = None  # what the code panel shows
    minutes: int | None = None  # in the lecture; None: left out
    ask: str | None = None  # the question that the step begins with

    @property
    def fragment(self) -> str:
        """The end of an address that opens this step, on any server and in any saved course."""
        return f"#step={self.id}"


@cache
def steps() -> tuple[Step, ...]:
    """All steps, in order."""
    path = files("clearformer.explore") / "static" / "course.json"
    return tuple(Step(**each) for each in json.loads(path.read_text(encoding="utf-8")))


def step(id: str) -> Step:
    """The step with an id."""
    known = {each.id: each for each in steps()}
    if id not in known:
        guess = closest(id, known)
        hint = f"did you mean {guess!r}?" if guess else f"the steps are: {', '.join(known)}"
        raise ValueError(f"there is no step {id!r} in the course: {hint}")
    return known[id]
