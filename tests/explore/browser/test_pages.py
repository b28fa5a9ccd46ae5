"""Every page: contacts no other host, passes the accessibility audit, fits every width."""

import os
from pathlib import Path

import pytest

PAGES = {
    "home": ({"model": "original"}, "#model-picture .strip"),
    "norm": ({"model": "bert"}, "#component"),
    "mlp": ({"model": "modern"}, "#unit"),
    "attention": ({"model": "gpt2"}, "table.ladder"),
    "plain": ({"view": "attention", "sub": "plain"}, "output[data-n]"),
    "root": ({"view": "attention", "sub": "root"}, "[data-sd]"),
    "order": ({"model": "gpt2"}, "#verdict-on [data-error]"),
    "space": ({"model": "gpt2"}, "#near td"),
    "generate": ({"model": "gpt2"}, "#bars tr[data-p]"),
    "training": ({"run": "gpt2"}, "#summary"),
    "stream": ({"model": "gpt2"}, "table.lens"),
    "classify": ({"view": "tasks", "model": "classifier"}, "table.why td[data-value]"),
    "fill": ({"view": "tasks", "task": "fill", "model": "bert"}, "[data-total]"),
    "translate": ({"view": "tasks", "task": "translate", "model": "original"}, "#rowsum"),
    "architectures": (
        {"model": "original", "text": "the cat sat on the mat"},
        ".three section:nth-child(3) [data-output]",
    ),
    "reach": ({}, "[data-count]"),
    "memory": ({"view": "reach", "reach": "memory"}, "[data-reach]"),
    "compare": ({"model": "gpt2"}, "[data-kl]"),
}
AUDIT = """async only => {
  const found = await axe.run(document, {resultTypes: ['violations'],
    ...(only ? {runOnly: {type: 'rule', values: only}} : {})});
  return found.violations.map(each =>
    each.id + ': ' + each.nodes.slice(0, 3).map(node => node.target.join(' ') + ' ' +
    (node.any[0]?.message ?? '')).join('; '));
}"""
FADED = "() => !document.getAnimations().some(each => each instanceof CSSTransition)"


@pytest.fixture(scope="module")
def axe():
    package = pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python")
    return (Path(package.__file__).parent / "axe.min.js").read_text()


def keep(page, name):
    """Screenshots for a person to look at, where a folder for them is named."""
    folder = os.environ.get("CLEARFORMER_SCREENSHOTS")
    if folder:
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)


@pytest.mark.parametrize("name", PAGES)
def test_page_loads_and_passes_audit(open_visit, axe, name):
    state, ready = PAGES[name]
    with open_visit() as visit:
        page = visit.go(**{"view": name, **state}, ready=ready)
        page.wait_for_load_state("networkidle" if name != "training" else "load")
        assert visit.failed == []
        assert [each for each in visit.responses if each[0] >= 400] == []
        assert page.locator("figure:not([data-source]):not(:has([data-source]))").count() <= 1
        for width in (390, 900, 1280, 1920):
            page.set_viewport_size({"width": width, "height": 900})
            # A drawing is given its new size by an observer, in one of the next frames.
            page.wait_for_function(
                "() => document.documentElement.scrollWidth <= document.documentElement.clientWidth"
            )
            keep(page, f"{name}-{width}-light")
        page.set_viewport_size({"width": 1280, "height": 900})
        page.evaluate(axe)
        assert page.evaluate(AUDIT) == []
        page.click("header button.plain")
        page.wait_for_function("() => document.documentElement.dataset.theme === 'dark'")
        # Colours fade from one theme to the other, and are judged when they have.
        page.wait_for_function(FADED)
        keep(page, f"{name}-1280-dark")
        # The structure is the same: in the dark only colours can fail.
        assert page.evaluate(AUDIT, ["color-contrast", "link-in-text-block"]) == []


def test_works_offline_after_loading(open_visit):
    """V1 needs no server at all, and an error says what to do."""
    with open_visit(check=False) as visit:
        page = visit.go(sub="plain", ready="output[data-n]")
        page.context.set_offline(True)
        before = page.inner_text("output[data-n='0'][data-d='0']")
        page.fill("input[data-n='0'][data-d='0']", "3")
        assert page.inner_text("output[data-n='0'][data-d='0']") != before
        page.click("nav a:has-text('Positions')")
        page.wait_for_selector("[role=alert]")
        assert "clearformer explore" in page.inner_text("[role=alert]")
        assert visit.refused == []


def test_every_control_is_reachable_by_tab(visit):
    """Each control is reached, or is in a group that is navigated by arrow keys."""
    page = visit.go(model="gpt2", ready="table.ladder td button")
    missed = page.evaluate(
        """() => [...document.querySelectorAll('button, select, input, textarea, a[href], summary')]
          .filter(each => each.tabIndex < 0 && !each.disabled)
          .filter(each => !each.closest('[role=group]')?.querySelector('[tabindex="0"]'))
          .map(each => each.outerHTML.slice(0, 80))"""
    )
    assert missed == []
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className").startswith("skip")
    page.focus("#mask")
    page.keyboard.press("Tab")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) != "none"


def test_back_button_restores_page(visit):
    page = visit.go(model="gpt2", ready="table.ladder")
    page.click("nav a:has-text('Long context')")
    page.wait_for_selector("[data-count]")
    page.go_back()
    page.wait_for_selector("table.ladder")


def test_lessons_work_without_model(visit):
    nothing = {"status": 200, "content_type": "application/json", "body": "[]"}
    visit.page.route("**/api/models", lambda route: route.fulfill(**nothing))
    page = visit.go(ready="output[data-n]")  # attention without parameters
    page.click("nav a:has-text('Positions')")
    page.wait_for_selector("h2:has-text('No model yet')")
    assert "clearformer train" in page.inner_text("pre")
    page.click("nav a:has-text('Long context')")
    page.wait_for_selector("[data-count]")
    page.click("nav a:has-text('Architectures')")
    page.wait_for_selector("[data-missing=pair] ~ .part[data-of=cross]")
    assert page.locator("[data-missing]").count() == 3
    page.click("nav a:has-text('Tasks')")
    page.wait_for_selector("pre >> nth=2")
