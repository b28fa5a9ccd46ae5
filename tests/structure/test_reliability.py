"""docs/reliability.md names an existing test for every failure."""

import re
from pathlib import Path

from clearformer.runs.faults import POINTS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/reliability.md").read_text()


def rows():
    return {
        int(number): tests
        for number, tests in re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|$", TEXT, re.MULTILINE)
        if int(number) <= 50 and "`{" not in tests
    }


def test_every_failure_has_a_row():
    assert sorted(rows()) == list(range(1, 51))


def test_every_row_names_tests_that_exist():
    for number, tests in rows().items():
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests)
        assert named, f"F{number}: {tests}"
        for file, test in named:
            assert f"def {test}(" in (ROOT / file).read_text(), f"F{number}: {file} has no {test}"


def test_every_crash_point_is_documented():
    assert " ".join(POINTS) in " ".join(TEXT.split())
