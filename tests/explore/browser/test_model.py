"""The picture of the whole model, and its links to the pages of norms and hidden units.

Their numbers are computed again in test_sources.py.
"""

import pytest

from clearformer.explore.blueprint import blueprint

FAMILIES = ["generator", "gpt2", "bert", "classifier", "original", "xl", "sparse", "modern"]
TEXT = "the cat sat on the mat"


@pytest.fixture(scope="module")
def each_family(browser, explorer_server):
    """One visit for all families: a page is opened once, and models are exchanged."""
    import importlib.util
    from pathlib import Path

    spec = importlib.util.spec_from_file_location(
        "conftest_of_browser", Path(__file__).with_name("conftest.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.visiting(browser, explorer_server.url) as visit:
        yield visit


@pytest.mark.parametrize("family", FAMILIES)
def test_picture_norms_and_units_of_every_family(each_family, loaded, family):
    visit = each_family
    plan = blueprint(loaded(family).config)
    page = visit.go("home", model=family, ready="#model-picture .strip")
    for stack, drawn in zip(plan["stacks"], page.locator("#model-picture svg").all(), strict=True):
        kinds = [each["kind"] for each in stack["blocks"][0]["steps"]]
        for kind in ("norm", "attention", "mlp", "add"):
            outside = kind == "norm" and sum(
                each is not None for each in (stack["norm"], stack["embedding"]["norm"])
            )
            assert drawn.locator(f".part.{kind}").count() == kinds.count(kind) + outside, kind
        assert drawn.locator(".part.block").count() == len(stack["blocks"]) - 1
    page.locator("#model-picture .part.mlp").last.click()
    page.wait_for_selector("#unit [data-value]")
    page.wait_for_function("() => !document.querySelector('.ghost, .wait')")
    assert page.locator("nav.here [aria-current=location]").inner_text() == "MLP"
    page.locator("nav.here a.norm").last.click()
    page.wait_for_selector("#component")
    page.wait_for_function("() => !document.querySelector('.ghost, .wait')")


def test_vectors_move_unless_motion_is_unwanted(open_visit):
    with open_visit() as visit:
        page = visit.go("home", model="gpt2", ready=".pulse")
        # They move: no clock is asked how fast.
        page.wait_for_function(
            "() => Number(document.querySelector('#model-picture').dataset.clock) > 2"
        )
        page.wait_for_function("() => !document.querySelector('.pulse')")
        page.click("#play")
        page.wait_for_selector(".pulse")
        page.click("#forward")
        before = page.get_attribute("#model-picture", "data-clock")
        page.click("#forward")
        assert float(page.get_attribute("#model-picture", "data-clock")) == float(before) + 1
    with open_visit(reduced_motion="reduce") as visit:
        page = visit.go("home", model="gpt2", ready="#model-picture .strip")
        assert page.locator(".pulse").count() == 0


def test_explorer_opens_on_the_model(visit, explorer_server):
    page = visit.page
    page.goto(explorer_server.url)
    page.wait_for_selector("#model-picture .part")
    assert page.locator("header [aria-current=page]").inner_text() == "Model"
    page.locator("#model-picture .part.attention").first.click()
    page.wait_for_selector("table.ladder")
    assert page.locator("nav.here [aria-current=location]").inner_text() == "Attention"


def test_lessons_lead_on_and_panels_are_presented(visit):
    page = visit.go("home", model="gpt2", ready="#model-picture .strip")
    page.click("#lesson-next")
    page.wait_for_selector("output[data-n]")  # the first lesson of Attention
    assert "view=attention" in page.url
    page.click("#lesson-back")
    page.wait_for_selector("#model-picture .strip")
    page = visit.go("norm", model="gpt2", ready="#component")
    page.click("#present")
    page.wait_for_selector(".presented")
    assert page.locator("main .sheet:visible").count() == 1
    page.locator("main").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".presented[data-part=units]")  # the next step of the lecture
    page.keyboard.press("Escape")
    page.wait_for_function("() => !document.querySelector('.presented')")


def test_generated_token_is_looked_into(visit):
    page = visit.go("generate", model="gpt2", text=TEXT, ready="#write")
    assert page.input_value("#prompt") == TEXT  # the text of the other pages
    page.click("#one")
    page.wait_for_selector("#written button")
    page.locator("#written button").first.click()
    page.click("#look")
    page.wait_for_selector("table.ladder")
    assert page.input_value("#text") == TEXT
    last = page.locator("[data-part=text] .tokens button").last
    assert last.get_attribute("aria-pressed") == "true"


def test_text_of_attention_is_continued(visit):
    """Also when another prompt was written before."""
    page = visit.go("attention", model="gpt2", text=TEXT, prompt="a dog", ready="#continue")
    page.click("#continue")
    page.wait_for_selector("#write")
    assert page.input_value("#prompt") == TEXT
