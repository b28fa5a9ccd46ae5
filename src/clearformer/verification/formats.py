"""Reports as text, JSON, JUnit and tests."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from clearformer.verification.findings import Finding, Report, plural

WIDTH = 100


def report_lines(report: Report) -> list[str]:
    """A report for a terminal."""
    head = f"verify {report.target}   read as: {report.read_as}   "
    missing = f" ({len(report.skipped)} more could not run)" if report.skipped else ""
    head += f"{plural(len(report.checks), 'check')}{missing}, "
    head += f"{plural(len(report.findings), 'finding')}, {report.seconds:.1f} s"
    lines = [head]
    lines += [f"  {each}" for each in report.assumptions]
    for finding in report.findings:
        lines += _finding_lines(finding)
    for name, reason in report.skipped.items():
        lines.append(f"  not checked: {name} ({', '.join(_names_of(name))})")
        lines.append(f"      {' '.join(reason.split())[:260]}")
    return lines


def _names_of(check: str) -> tuple[str, ...]:
    """The bugs that a check would have named."""
    from clearformer.verification.catalogue import CHECKS

    return next((each.names for each in CHECKS if each.run.__name__ == check), ())


def _finding_lines(finding: Finding) -> list[str]:
    lines = [f" {finding.severity:7}  {finding.name}   {finding.place}"]
    indent = " " * 10
    lines += textwrap.wrap(finding.sentence, WIDTH, initial_indent=indent, subsequent_indent=indent)
    if finding.shows_with:
        size = "" if finding.effect is None else f"; effect {finding.effect:.3g}"
        lines.append(f"{indent}shows with: {finding.shows_with}{size}")
    if finding.right:
        lines.append(f"{indent}right: {finding.right}")
    if finding.consequences:
        lines.append(f"{indent}explains: {', '.join(finding.consequences)}")
    lines.append(f"{indent}docs: {finding.docs}")
    return lines


def report_json(report: Report) -> dict[str, Any]:
    """A report as plain values."""
    return {
        "target": report.target,
        "read_as": report.read_as,
        "assumptions": list(report.assumptions),
        "seconds": round(report.seconds, 3),
        "seed": report.seed,
        "checks": list(report.checks),
        "not_checked": dict(report.skipped),
        "findings": [
            {
                "name": each.name,
                "severity": each.severity.value,
                "sentence": each.sentence,
                "module": each.place.module,
                "line": each.place.line,
                "shows_with": each.shows_with,
                "effect": each.effect,
                "right": each.right,
                "explains": list(each.consequences),
                "docs": each.docs,
            }
            for each in report.findings
        ],
    }


def report_junit(report: Report) -> str:
    """A report as JUnit XML: a test case for each check, a failure for each problem."""
    suite = ElementTree.Element(
        "testsuite",
        name="clearformer verify",
        tests=str(len(report.checks) + len(report.problems) + len(report.skipped)),
        skipped=str(len(report.skipped)),
        failures=str(len(report.problems)),
        time=f"{report.seconds:.3f}",
    )
    for name in report.checks:
        ElementTree.SubElement(suite, "testcase", classname=_xml(report.target), name=name)
    for name, reason in report.skipped.items():
        case = ElementTree.SubElement(suite, "testcase", classname=_xml(report.target), name=name)
        ElementTree.SubElement(case, "skipped", message=_xml(reason))
    for each in report.problems:
        case = ElementTree.SubElement(
            suite, "testcase", classname=_xml(report.target), name=each.name
        )
        failure = ElementTree.SubElement(case, "failure", message=_xml(each.sentence))
        failure.text = _xml("\n".join(_finding_lines(each)))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def _xml(text: str) -> str:
    """Text without characters that XML forbids."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd]", "?", text)


def as_test(finding: Finding, target: str, seed: int = 0, kind: str | None = None) -> str:
    """A pytest function that fails as long as the bug is there."""
    if finding.reproduction is None:
        return _calls_verify(finding, target, seed, kind)
    imports, made = _build(target)
    body = textwrap.indent(finding.reproduction, "    ").replace("\n    \n", "\n\n")
    return f'''"""{_plain(finding.sentence)}"""

{imports}import torch


def build():
    """The model with noise in its weights, since zeros and equal rows hide bugs."""
    torch.manual_seed({seed})
    model = {made}
    with torch.no_grad():
        for parameter in model.parameters():
            spread = parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.1
            if parameter.dim() > 1:
                parameter.zero_()
            parameter.add_(spread * torch.randn_like(parameter))
    return model.eval()


def test_{_identifier(finding)}():
{_about(finding)}
    model = build()

{body}
'''


def _build(target: str) -> tuple[str, str]:
    """The imports and the expression that make a model of a target text."""
    place, colon, call = target.partition(":")
    if not colon:
        if Path(target).is_dir():
            return "import clearformer\n", f"clearformer.load({target!r}).module"
        return "", f"{_plain(target)}()  # build your model here"
    call = call if call.endswith(")") else f"{call}()"
    name = call.partition("(")[0]
    if not place.endswith(".py"):
        return f"from {place} import {name}\n", call
    path = Path(place).resolve()
    found = f"import sys\n\nsys.path.insert(0, {str(path.parent)!r})\n"
    return f"{found}from {path.stem} import {name}  # noqa: E402\n", call


def _identifier(finding: Finding) -> str:
    return re.sub(r"\W", "_", finding.name)


def _about(finding: Finding) -> str:
    return "\n".join(f"    # {line}" for line in textwrap.wrap(_comment(finding), WIDTH - 8))


def _calls_verify(finding: Finding, target: str, seed: int, kind: str | None) -> str:
    """A test for bugs that only the operations inside show."""
    asked = f"{finding.name!r}"
    kind_argument = f", as_={kind!r}" if kind else ""
    return f'''"""{_plain(finding.sentence)}"""

from clearformer.verification.check import verify


def test_{_identifier(finding)}():
{_about(finding)}
    report = verify({target!r}, only=[{asked}], seed={seed}{kind_argument})
    assert not report.findings, str(report)
'''


def _comment(finding: Finding) -> str:
    parts = [
        f"At {finding.place}." if str(finding.place) else "",
        f"Shows with: {finding.shows_with}.",
    ]
    parts.append(f"Right: {finding.right}." if finding.right else "")
    return _plain(" ".join(each for each in parts if each))


def _plain(text: str) -> str:
    return re.sub(r"[^\x20-\x7e]", "?", text).replace("\\", "/").replace('"""', "'''")
