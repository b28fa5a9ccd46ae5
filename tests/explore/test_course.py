"""The list of steps: complete, in order, and with addresses."""

import json
from pathlib import Path

import pytest

from clearformer.explore import course
from clearformer.explore.source_code import STAGES

WEB = Path(__file__).parents[2] / "web" / "src"
LESSONS = json.loads((WEB / "strings.en.json").read_text())


def test_every_step_has_its_words_and_code():
    steps = course.steps()
    assert [each.id for each in steps] == list(LESSONS["lessons"])  # in order, each once
    assert {each.section for each in steps} == set(LESSONS["lesson"]["sections"])
    formulas = json.loads((WEB / "lessons" / "formulas.json").read_text())
    for each in steps:
        assert each.view in LESSONS["views"]
        assert each.code is None or each.code in STAGES
        assert {each.formula, each.post} - {None} <= set(formulas)
        assert (each.post is not None) <= ("post" in LESSONS["lessons"][each.id])


def test_sections_follow_one_another():
    """A section is one stretch of the course."""
    sections = [each.section for each in course.steps()]
    begins = [n for n, name in enumerate(sections) if n == 0 or name != sections[n - 1]]
    assert len(begins) == len(set(sections))


def test_step_by_id():
    assert course.step("heads").fragment == "#step=heads"
    with pytest.raises(ValueError, match="no step 'head s' in the course: did you mean 'heads'"):
        course.step("head s")
    with pytest.raises(ValueError, match="the steps are: model, average"):
        course.step("zzzzzz")
