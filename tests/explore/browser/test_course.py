"""The course: every step opens, Next leads through all of them, and the place is in the address."""

import re
import urllib.parse
from pathlib import Path

import pytest

from clearformer.explore import course

STEPS = course.steps()
DOCS = Path(__file__).parents[3] / "docs"
TEXT = "the dog sat on the mat"


@pytest.mark.parametrize("model", ["gpt2", "classifier", "original"])
def test_every_step_opens_by_its_address(visit, model):
    """Without an error, on its page, with its panel where the model has what it speaks of."""
    page = visit.go("home", model=model, ready="#model-picture .strip")
    for number, step in enumerate(STEPS, 1):
        page.evaluate("hash => { location.hash = hash }", f"{step.fragment}&model={model}")
        page.wait_for_selector(f"[data-step='{step.id}']")
        assert page.inner_text("#lesson-count") == f"Step {number} of {len(STEPS)}"
        page.wait_for_selector("main .sheet")
        page.wait_for_function("() => !document.querySelector('.wait')")
        assert page.locator("main [role=alert]").count() == 0, step.id
        if model == "gpt2" and step.view != "tasks":
            page.wait_for_selector(f"[data-part='{step.lit}']")


def test_next_leads_through_the_course_with_one_text(visit):
    page = visit.go("home", model="gpt2", text=TEXT, ready="#model-picture .strip")
    for number, step in enumerate(STEPS, 1):
        page.wait_for_selector(f"[data-step='{step.id}']")
        if number < len(STEPS):
            page.click("#lesson-next")
    assert page.is_disabled("#lesson-next")
    # A page that needs another model gives the reader's own back.
    assert f"text={urllib.parse.quote_plus(TEXT)}" in page.url
    page.click("#lesson-back")
    page.wait_for_selector(f"[data-step='{STEPS[-2].id}']")
    page.reload()
    page.wait_for_selector(f"[data-step='{STEPS[-2].id}']")
    page.click("nav a:has-text('Positions')")
    page.wait_for_selector("[data-step='order']")
    page.click("#lesson-return")
    page.wait_for_selector(f"[data-step='{STEPS[-2].id}']")


def test_words_of_the_text_begin_the_course(visit):
    page = visit.go(sub="plain", model="gpt2", text="A rose is a rose", ready="input[data-n]")
    words = page.eval_on_selector_all("input.word", "all => all.map(each => each.value)")
    assert words == ["a", "rose", "is", "a", "rose"]
    script = "all => all.map(each => Number(each.value))"
    rows = page.eval_on_selector_all("input[data-n]", script)
    assert rows[:8] == rows[12:]  # the same word has the same vector
    assert rows[:4] != rows[4:8]


def test_contents_link_to_every_step(visit):
    page = visit.go("home", model="gpt2", ready="#course")
    links = page.eval_on_selector_all("#course a", "all => all.map(each => each.hash)")
    found = [dict(urllib.parse.parse_qsl(each[1:])) for each in links]
    assert [each["step"] for each in found] == [step.id for step in STEPS]
    assert all(each["model"] == "gpt2" for each in found)
    page.click("#course summary")
    page.click("#course a:has-text('Many heads')")
    page.wait_for_selector("[data-part=heads]")
    assert "clearformer explore --open heads" in page.inner_text("#course")


def test_unknown_step_is_named(visit):
    page = visit.page
    page.goto(f"{visit.url}/#model=gpt2&step=nonsense")
    page.wait_for_selector("#no-step")
    assert "“nonsense”" in page.inner_text("#no-step")


def test_every_link_of_the_book_opens(visit):
    """The panels that the chapters link to, with what their addresses say."""
    page = visit.go("home", model="gpt2", ready="#model-picture .strip")
    for path in sorted((DOCS / "book").glob("*.md")):
        for fragment in re.findall(r"127\.0\.0\.1:8765/#([^)\s]+)\)", path.read_text()):
            given = dict(urllib.parse.parse_qsl(fragment))
            model = "original" if "part=cross" in fragment else "gpt2"
            page.evaluate("hash => { location.hash = hash }", f"model={model}&{fragment}")
            page.wait_for_selector(f"[data-step='{given['step']}']")
            page.wait_for_selector("main .sheet", state="attached")
            page.wait_for_function("() => !document.querySelector('.wait')")
            assert page.locator("main [role=alert]").count() == 0, (path.name, fragment)
            now = dict(urllib.parse.parse_qsl(page.url.partition("#")[2]))
            for name, value in given.items():
                if name not in ("layer", "head"):  # this model has fewer
                    assert now.get(name, value) == value, (path.name, fragment)
