"""Packaging: version, licences, and pinned versions of every dependency."""

import re
import tomllib
from pathlib import Path

from clearformer import __version__

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def released(changelog):
    """The versions that a changelog has sections for, newest first; `Unreleased` is none."""
    return re.findall(r"^## \[?v?(\d+\.\d+\.\d+)", changelog, re.MULTILINE)


def number(version):
    return tuple(map(int, version.split(".")))


def test_released_versions_of_changelog():
    text = "# Changelog\n\n## Unreleased\n\n- a\n\n## 0.2.0, 2026-11-18\n\n## 0.1.0\n"
    assert released(text) == ["0.2.0", "0.1.0"]


def test_version_matches_changelog():
    text = (ROOT / "CHANGELOG.md").read_text()
    versions = released(text)
    assert versions == sorted(versions, key=number, reverse=True)
    if re.search(r"^## Unreleased", text, re.MULTILINE):
        assert number(__version__) >= max(map(number, versions), default=(0,))
    else:
        assert versions[0] == __version__


def test_citation_has_current_version():
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited[1] == __version__


def test_every_licence_file_exists():
    assert "src/clearformer/explore/static/LICENSES.txt" in PROJECT["license-files"]
    for path in PROJECT["license-files"]:
        assert (ROOT / path).read_text().strip(), path


def test_every_dependency_has_a_tested_version():
    pins = re.findall(r"^([\w.-]+)==\S+$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    names = [normal(name) for name in pins]
    assert len(names) == len(set(names)), "a package is pinned twice"
    extras = PROJECT["optional-dependencies"].values()
    wanted = [name for group in [PROJECT["dependencies"], *extras] for name in group]
    for requirement in wanted:
        assert normal(re.match(r"[\w.-]+", requirement)[0]) in names, requirement


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()
