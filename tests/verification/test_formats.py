"""Reports as text, JSON, JUnit and tests."""

import json
from xml.etree import ElementTree

from clearformer.verification.entries import finding
from clearformer.verification.findings import Place, Report
from clearformer.verification.formats import as_test, report_json, report_junit, report_lines

FOUND = finding(
    "scale-missing", "scores are \x1b[31m not scaled", Place("a.b", "m.py:4"), shows="x", effect=0.5
)
REPORT = Report("m.py:M", "an encoder", ("both ways",), (FOUND,), ("scale",), {"order": "why"}, 1.5)


def test_text_report_contents():
    text = "\n".join(report_lines(REPORT))
    head = "verify m.py:M   read as: an encoder   1 check (1 more could not run), 1 finding, 1.5 s"
    assert text.startswith(head)
    for part in (
        "error",
        "scale-missing",
        "a.b (m.py:4)",
        "shows with: x; effect 0.5",
        "not checked: order (permutation-equivariant)",
    ):
        assert part in text


def test_json_report_round_trip():
    found = json.loads(json.dumps(report_json(REPORT)))
    assert found["findings"][0]["name"] == "scale-missing"
    assert found["not_checked"] == {"order": "why"}


def test_junit_report_has_failure_per_problem():
    suite = ElementTree.fromstring(report_junit(REPORT))
    assert suite.attrib["failures"] == "1"
    assert [case.attrib["name"] for case in suite] == ["scale", "order", "scale-missing"]
    assert suite[1][0].attrib == {"message": "why"}
    assert "\x1b" not in report_junit(REPORT)


def test_generated_test_is_valid_python():
    text = as_test(FOUND, "m.py:M", seed=3, kind="encoder")
    compile(text, "test", "exec")
    assert "verify('m.py:M', only=['scale-missing'], seed=3, as_='encoder')" in text
    assert "\x1b" not in text
