"""Questions of the course: hidden first, answered from the numbers that the page shows."""

import json
import math
import urllib.request

import pytest

from clearformer.explore import course
from clearformer.explore.arrays import unpack

TEXT = "the cat sat on the mat"
STEPS = {step.ask: step for step in course.steps() if step.ask}
WRITERS = set(STEPS)
READERS = WRITERS - {"next", "cooler", "surprise"}
# A classifier predicts no tokens; one of two stacks has no probe, as each has its own text.
ASKED = {
    "generator": WRITERS,
    "xl": WRITERS,
    "modern": WRITERS,
    "bert": READERS,
    "classifier": READERS - {"lens"},
    "original": READERS - {"future"},
}


class Shown:
    """The right answer of each question, read from the numbers on the page."""

    def __init__(self, page):
        self.page = page
        self.requests = []
        page.on("request", lambda request: self.requests.append(request.url))

    def numbers(self, selector, attribute="data-value"):
        script = f"all => all.map(each => Number(each.getAttribute('{attribute}')))"
        return self.page.eval_on_selector_all(selector, script)

    def parts(self, field, request):
        """A field of what the page asked of the server last."""
        asked = [each for each in self.requests if f"/{request}?" in each]
        with urllib.request.urlopen(asked[-1]) as response:
            value = json.loads(response.read())[field]
        return unpack(value) if isinstance(value, dict) else value

    def row_sum(self):
        row = self.numbers("[data-part=weights] tr.on td[data-value]")
        return ["one" if sum(row) == pytest.approx(1, abs=1e-6) else "depends"]

    def strongest(self):
        row = self.numbers("table.ladder td[data-stage=weights]")
        return [str(n) for n, value in enumerate(row) if value == max(row)]

    def spread(self):
        raw = float(self.page.inner_text("[data-sd=raw]"))
        return [str(min((1, 8, 64), key=lambda each: abs(math.log(each / raw))))]

    def normalized(self):
        after, root = (self.parts(each, "norm") for each in ("normalized", "root"))
        size = math.log((after**2).mean() ** 0.5)
        return ["one" if abs(size) <= abs(size - math.log(root)) else "same"]

    def above(self):
        share = (self.parts("pre", "mlp") > 0).mean()
        return ["few" if share < 1 / 3 else "most" if share > 2 / 3 else "half"]

    def added(self):
        row = self.page.locator("[data-part=norms] tr.on td.number").all_inner_texts()
        attention, mlp = (float(each) for each in row)
        return ["attention" if attention > mlp else "mlp"]

    def shuffle(self, name="off"):
        (error,) = self.numbers(f"#verdict-{name} [data-error]", "data-error")
        return ["moved" if error < 1e-3 else "other"]

    def positions(self):
        return self.shuffle("on")

    def future(self):
        delta = self.numbers("td[data-delta]", "data-delta")
        edited = self.page.locator(".deltas th").evaluate_all(
            "all => all.findIndex(each => each.classList.contains('edit'))"
        )
        before = delta[:edited]
        return ["all" if all(before) else "some" if any(before) else "none"]

    def next(self):
        p = self.numbers("#bars tr[data-p]", "data-p")
        return [self.page.locator("#bars tr[data-p]").nth(p.index(max(p))).get_attribute("data-id")]

    def cooler(self):  # at half the temperature, what was likely becomes likelier
        return ["larger"]

    def surprise(self):
        bits = self.numbers("[data-part=surprise] [data-bits]", "data-bits")
        known = [each for each in bits if not math.isnan(each)]
        return [str(n) for n, each in enumerate(bits) if each == max(known)]

    def lens(self):
        token = self.page.locator("table.lens td[data-row]").evaluate_all(
            "all => Object.fromEntries(all.map(({dataset: e}) => [`${e.row} ${e.place}`, e.id]))"
        )
        rows = sorted({int(key.split()[0]) for key in token})
        n = self.page.locator("table.lens th.on").evaluate("each => each.cellIndex - 1")
        return ["already" if token[f"{rows[1]} {n}"] == token[f"{rows[-1]} {n}"] else "later"]

    def reach(self):
        return [str(int(self.numbers("[data-count]", "data-count")[-1]))]

    def memory(self):
        return [str(int(max(self.numbers("[data-reach]", "data-reach"))))]


@pytest.mark.parametrize("model", ASKED)
def test_answers_are_the_numbers_of_the_page(visit, model):
    page = visit.go("home", model=model, text=TEXT, ready="#model-picture .strip")
    shown, seen = Shown(page), set()
    for ask, step in STEPS.items():
        page.evaluate(
            "hash => { location.hash = hash }", f"{step.fragment}&model={model}&text={TEXT}"
        )
        page.wait_for_selector(f"[data-step='{step.id}']")
        page.wait_for_selector("main .sheet", state="attached")
        if ask not in ASKED[model]:
            continue
        page.wait_for_selector(f"#question[data-ask='{ask}']")
        veiled = page.locator(".sheet.veiled")
        assert "Hidden until you have answered" in veiled.first.inner_text()
        assert not any("→" in each for each in veiled.all_inner_texts())  # the cell names its key
        assert not page.locator("#answer").get_attribute("data-right")
        choice = page.locator("#question [data-choice]").first
        guess = choice.get_attribute("data-choice")
        choice.focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("#answer[data-right]")
        page.wait_for_function("() => !document.querySelector('.wait')")
        right = page.get_attribute("#answer", "data-right").split(",")
        assert right == getattr(shown, ask.replace("-", "_"))(), ask
        said = page.inner_text("#answer").strip()
        assert said.startswith("Right." if guess in right else "You chose “"), ask
        assert page.locator(".sheet.veiled").count() == 0
        seen.add(ask)
    assert seen == ASKED[model]
    assert len(seen) >= 8


def test_guess_is_kept_and_may_be_taken_back(visit):
    page = visit.go("home", model="gpt2", text=TEXT, ready="#model-picture .strip")
    page.evaluate("location.hash += '&view=attention&step=ladder'")
    page.wait_for_selector("#question [data-choice]")
    page.locator("#question [data-choice]").nth(1).click()
    page.wait_for_selector("#answer[data-right]")
    said = page.inner_text("#answer")
    page.reload()
    page.wait_for_selector("#answer[data-right]")
    assert page.inner_text("#answer") == said
    assert page.get_attribute("#question [aria-pressed=true]", "data-choice") == "1"
    page.wait_for_selector("table.ladder")
    # Of another text the guess says nothing, and its numbers are not hidden from one who plays.
    page.fill("#text", "the mat sat on the cat")
    page.click("#run")
    page.wait_for_function("() => !document.querySelector('#question [data-choice]')")
    assert page.locator(".sheet.veiled").count() == 0
    page.click("#ask-again")
    page.wait_for_selector(".sheet.veiled")
    page.click("#show-answer")
    page.wait_for_selector("#answer[data-right]")
    assert page.inner_text("#answer").startswith("Most weight goes to")
    page.click("#course summary")
    page.uncheck("#quiz")
    page.click("#course a:has-text('Why divide by')")
    page.wait_for_selector("[data-sd]")
    assert page.locator("#question").count() == 0


def test_presenter_asks_shows_and_goes_on(open_visit):
    with open_visit(viewport={"width": 1024, "height": 768}) as visit:
        page = visit.go("attention", model="gpt2", step="ladder", present="true",
                        ready="#question [data-choice]")  # fmt: skip
        assert page.locator("main .sheet:visible").count() == 1
        page.keyboard.press("PageDown")  # as a remote control does
        page.wait_for_selector("#answer[data-right]")
        page.wait_for_selector(".sheet.presented table.ladder")
        page.keyboard.press("c")
        assert "def explicit" in page.inner_text("#drawer pre.code")
        page.keyboard.press("Escape")
        page.wait_for_function("() => !document.querySelector('#drawer')")
        page.keyboard.press("Shift+ArrowRight")
        page.wait_for_selector(".sheet.presented:not([data-part=ladder])")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("[data-step=softmax]")
        page.wait_for_selector(".sheet.presented[data-part=numbers]")
        page.keyboard.press("PageUp")
        page.wait_for_selector("[data-step=ladder]")
        page.keyboard.press("Escape")
        page.wait_for_selector("header.shell:visible")
