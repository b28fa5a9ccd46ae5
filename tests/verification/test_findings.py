"""Findings and reports."""

from clearformer.verification.entries import finding
from clearformer.verification.findings import Place, Report, Severity, listed, plural


def report(*findings):
    return Report("m.py:M", "an encoder", ("looks both ways",), findings, ("scale",), {}, 1.0)


def test_report_is_true_without_problems():
    assert report()
    assert report(finding("gelu-variant", "a"))
    assert not report(finding("scale-missing", "a"))
    assert report(finding("scale-missing", "a", severity=Severity.INFO)).problems == ()


def test_finding_links_to_docs_and_becomes_test():
    found = finding("scale-missing", "no scale", Place("blocks.0", "m.py:4"))
    assert found.docs == "docs/verify.md#scale-missing"
    assert "def test_scale_missing" in found.as_test("m.py:M")
    assert str(found.place) == "blocks.0 (m.py:4)"


def test_plural_and_listed():
    assert (plural(1, "check"), plural(2, "check")) == ("1 check", "2 checks")
    assert listed(list("abcdef")) == "a, b, c, d and 2 more"
