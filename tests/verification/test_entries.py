"""Catalogue entries: severities, and findings that explain others."""

from clearformer.verification.entries import ENTRIES, finding, resolve
from clearformer.verification.findings import Severity


def test_cause_replaces_explained_findings():
    found = [
        finding("future-leak", "a"),
        finding("softmax-axis", "b"),
        finding("softmax-axis", "c"),
    ]
    (kept,) = resolve(found)
    assert (kept.name, kept.sentence) == ("softmax-axis", "b")
    assert kept.consequences == ("future-leak",)


def test_info_findings_explain_nothing():
    found = [finding("future-leak", "a"), finding("softmax-axis", "b", severity=Severity.INFO)]
    assert [each.name for each in resolve(found)] == ["future-leak", "softmax-axis"]


def test_errors_come_first():
    found = [
        finding("gelu-variant", "a"),
        finding("initial-loss", "b"),
        finding("scale-missing", "c"),
    ]
    assert [each.severity.value for each in resolve(found)] == ["error", "warning", "info"]


def test_explained_names_exist():
    for entry in ENTRIES.values():
        assert set(entry.explains) <= set(ENTRIES), entry.name
        assert entry.name not in entry.explains or entry.name in ENTRIES[entry.name].explains
