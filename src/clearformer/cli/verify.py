"""`clearformer verify MODEL`: finds known bugs in a transformer."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from clearformer.cli.output import say, tell, write_json

if TYPE_CHECKING:
    from clearformer.verification.findings import Report


@dataclass(frozen=True)
class Verify:
    """Find known bugs in a transformer: your own code, a run, or a Hugging Face folder.

    Exit code 0: nothing is wrong; 1: errors or warnings were found.
    """

    model: tyro.conf.Positional[str | None] = None
    """my_model.py:MyGPT, my_model.py:MyAttention(64, heads=4), package.module:factory, or a
    folder; none: list all checks."""
    as_: Annotated[str | None, tyro.conf.arg(name="as")] = None
    """What the model is, if its name does not tell: causal-lm, masked-lm, encoder, seq2seq,
    classifier, attention, causal-attention, causal-stack."""
    only: str | None = None
    """Bugs to check for, as in future-leak,scale-missing; default: all."""
    skip: str | None = None
    """Bugs not to check for."""
    seed: int = 0
    """Seed of the noise in the weights and of the inputs."""
    explain: str | None = None
    """Print the page of a bug instead."""
    json: bool = False
    """Print the report as one line of JSON."""
    junit: Path | None = None
    """Write the report as JUnit XML to this file."""
    save_tests: Path | None = None
    """Write a pytest file for each finding into this folder."""

    def run(self) -> None:
        if self.explain is not None:
            from clearformer.verification.pages import page

            for line in page(self.explain).split("\n"):
                say(line)
            return
        if self.model is None:
            _list_bugs()
            return
        from clearformer.verification.check import verify

        report = verify(
            self.model, as_=self.as_, only=_names(self.only), skip=_names(self.skip), seed=self.seed
        )
        self._write(report)
        sys.exit(0 if report else 1)

    def _write(self, report: Report) -> None:
        from clearformer.verification.formats import report_json, report_junit, report_lines

        if self.json:
            write_json(report_json(report))
        else:
            for line in report_lines(report):
                say(line)
        if self.junit is not None:
            self.junit.write_text(report_junit(report), encoding="utf-8")
        if self.save_tests is not None:
            self._save_tests(report)

    def _save_tests(self, report: Report) -> None:
        from clearformer.verification.formats import as_test

        assert self.save_tests is not None
        self.save_tests.mkdir(parents=True, exist_ok=True)
        for each in report.problems:
            path = self.save_tests / f"test_{each.name.replace('-', '_')}.py"
            path.write_text(as_test(each, report.target, report.seed, self.as_), encoding="utf-8")
            tell(f"test: {path}")


def warn(model: Any) -> None:
    """Warn on stderr if `verify` finds a bug that makes a model's metrics wrong."""
    from clearformer.verification.check import verify

    try:
        report = verify(model)
    except ValueError as problem:
        tell(f"note: the model could not be verified: {problem}")
        return
    for each in report.problems:
        tell(f"warning: {each.name}: {each.sentence} (clearformer verify --explain {each.name})")
    for name, reason in report.skipped.items():
        tell(f"note: not checked: {name}: {reason}")
    if report:
        tell(f"verified: {len(report.checks)} checks, nothing wrong")


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [each.strip() for each in text.split(",") if each.strip()]


def _list_bugs() -> None:
    from clearformer.verification.entries import ENTRIES

    for name, entry in ENTRIES.items():
        say(f"{name:32} {entry.severity:8} {entry.summary}")
    say()
    say("clearformer verify my_model.py:MyGPT checks for them; --explain NAME describes one.")
