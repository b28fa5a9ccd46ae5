"""Findings of checks, and the report with all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"  # a figure is wrong
    WARNING = "warning"  # works now, breaks later
    INFO = "info"  # unusual, perhaps meant


@dataclass(frozen=True)
class Place:
    """Where in the model: the path of a module and a line of its source."""

    module: str = ""
    line: str = ""

    def __str__(self) -> str:
        module = self.module or "the model itself"
        return f"{module} ({self.line})" if self.line else module


@dataclass(frozen=True)
class Finding:
    """One bug: its name, a sentence, where it starts and how to reproduce it."""

    name: str
    severity: Severity
    sentence: str
    place: Place = Place()
    shows_with: str = ""  # the smallest input that shows it
    effect: float | None = None  # how large it is, relative to the output
    right: str = ""  # what a correct model does
    consequences: tuple[str, ...] = ()  # other findings that this one explains
    reproduction: str | None = None  # lines of plain torch that fail while the bug is there

    @property
    def docs(self) -> str:
        return f"docs/verify.md#{self.name}"

    def as_test(self, target: str = "my_model.py:MyModel", seed: int = 0) -> str:
        """A pytest file that fails as long as the bug is there."""
        from clearformer.verification.formats import as_test

        return as_test(self, target, seed)


@dataclass(frozen=True)
class Report:
    """All findings about one model, with what was assumed about it."""

    target: str
    read_as: str
    assumptions: tuple[str, ...]
    findings: tuple[Finding, ...]
    checks: tuple[str, ...]  # names of the checks that ran
    skipped: Mapping[str, str] = field(default_factory=dict)  # check: why it did not run
    seconds: float = 0.0
    seed: int = 0

    @property
    def problems(self) -> tuple[Finding, ...]:
        """Findings that are errors or warnings."""
        return tuple(each for each in self.findings if each.severity is not Severity.INFO)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.findings)

    def __bool__(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def __str__(self) -> str:
        from clearformer.verification.formats import report_lines

        return "\n".join(report_lines(self))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What a notebook shows."""
        printer.text(str(self))


def plural(count: int, noun: str) -> str:
    """`1 finding`, `2 findings`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def listed(names: Sequence[str], limit: int = 4) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - limit
    shown = ", ".join(names[:limit])
    return shown if more <= 0 else f"{shown} and {more} more"
