"""The list of steps: complete, in order, and with addresses."""

import json
import re
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from clearformer.explore import course
from clearformer.explore.source_code import STAGES

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web" / "src"
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


# --- the documents that point at steps ------------------------------------------------------

LINK = re.compile(r"\(http://127\.0\.0\.1:8765/#([^)\s]+)\)")


def links(folder):
    """(file, address) of every link into the explorer."""
    return [
        (path.name, dict(parse_qsl(fragment)))
        for path in sorted((ROOT / "docs" / folder).glob("*.md"))
        for fragment in LINK.findall(path.read_text())
    ]


def test_every_chapter_points_at_a_step():
    known = {each.id for each in course.steps()}
    named = {}
    for path in (ROOT / "docs").glob("**/*.md"):
        for id in re.findall(r"explore [^`\n]*--open ([\w-]+)", path.read_text()):
            named.setdefault(path.name, set()).add(id)
    for name, given in links("book"):
        named.setdefault(name, set()).add(given["step"])  # every link names one
    assert set().union(*named.values()) <= known
    chapters = {path.name for path in (ROOT / "docs" / "book").glob("[0-9]*.md")}
    assert len(chapters) == 16
    for name in chapters:
        section = (ROOT / "docs" / "book" / name).read_text().partition("## In the explorer")[2]
        assert "--open " in section.partition("\n## ")[0], name
        assert named[name] <= known


def test_lecture_follows_the_course():
    text = (ROOT / "docs" / "guide" / "lecture.md").read_text()
    planned = re.findall(r"^\| (\d+) \| `([\w-]+)` \| (asks)? *\|", text, re.MULTILINE)
    begins, wanted = 0, []
    for each in course.steps():
        if each.minutes:
            wanted.append((str(begins), each.id, "asks" if each.ask else ""))
            begins += each.minutes
    assert planned == wanted
    assert begins == 45
    assert "| 45 | | |" in text
