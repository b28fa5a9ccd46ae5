"""What the page says of itself is true, and what the reader did is not lost."""

import itertools
import shutil

import pytest

from clearformer.explore.token_display import vocabulary_items
from clearformer.explore.trace import trace
from clearformer.generate.sequence import Uniforms

LADDER = "table.ladder td[data-stage=weights]"
BARS = "#bars tr[data-p]"
TEXT = "the cat sat on the mat"
STILL = "() => !document.querySelector('.ghost, .wait')"


# --- the reader's model and text ------------------------------------------------------------


def test_tasks_page_gives_model_and_text_back(visit):
    page = visit.go(model="gpt2", text="the dog sat", ready=LADDER)
    page.click("nav a:has-text('Tasks')")
    page.wait_for_selector("#borrowed")
    assert "gpt2" in page.inner_text("#borrowed")
    page.click("button:has-text('Fill in words')")
    page.wait_for_selector("[data-total]")
    page.click("nav a:has-text('Attention')")
    page.wait_for_selector(LADDER)
    assert page.input_value("#model") == "gpt2"
    assert page.input_value("#text") == "the dog sat"


def test_address_of_missing_model_says_so(visit):
    page = visit.go(model="vanished", text="x", ready="#missing")
    assert "vanished" in page.inner_text("#missing h2")
    page.click("#missing button:has-text('gpt2')")
    page.wait_for_selector(LADDER)
    # Names from before and after pages were renamed.
    for name, title in (("stream", "Layers"), ("layers", "Layers"), ("order", "Positions")):
        page = visit.go(name, model="gpt2", ready="nav a[aria-current]")
        assert page.inner_text("nav a[aria-current]") == title


def test_written_text_survives_reload_and_other_pages(visit):
    page = visit.go("generate", model="gpt2", prompt="the cat", length=3, ready=BARS)
    page.click("#write")
    page.wait_for_function("() => document.querySelectorAll('#written button').length === 3")
    page.wait_for_selector("#write")
    page.locator("#written button").nth(2).click()
    page.locator(".alternatives button[aria-pressed=false]").first.click()  # a branch
    page.locator("#temperature").evaluate(
        "each => { each.value = 2; each.dispatchEvent(new Event('input', {bubbles: true})); }"
    )
    page.click("#one")
    page.wait_for_function("() => document.querySelectorAll('#written button').length === 4")
    page.wait_for_selector("h2:has-text('after 4 more')")

    def told():
        """Tokens and their numbers."""
        labels = "all => all.map(each => [each.dataset.id, each.dataset.u, each.ariaLabel])"
        return page.eval_on_selector_all("#written button", labels)

    before = told()
    for act in (page.reload, lambda: page.click("nav a:has-text('Long context')")):
        act()
        if page.locator("nav a[aria-current]:has-text('Generate')").count() == 0:
            page.wait_for_selector("[data-count]")
            page.click("nav a:has-text('Generate')")
        page.wait_for_function("() => document.querySelectorAll('#written button').length === 4")
        assert told() == before
        assert page.locator("#written .chosen").count() == 1


def test_rarely_drawn_token_has_its_text(visit, explorer_server):
    """The names of the 200 most probable tokens come along; another one is asked for."""
    seed = next(seed for seed in range(1000) if Uniforms(seed, 0)[0] > 0.99)
    page = visit.go("generate", model="gpt2", prompt="the", seed=seed, temperature=5,
                    ready="#draw[data-id]")  # fmt: skip
    page.wait_for_function("() => !document.querySelector('#draw b').textContent.includes('…')")
    id = int(page.get_attribute("#draw", "data-id"))
    assert int(page.get_attribute("#bars tr.chosen", "data-id")) == id
    model = explorer_server.models["gpt2"]
    assert page.inner_text("#draw b") == vocabulary_items(model, [id])[0]["display"]


REFUSED = {  # a number of each page that is of the text, and the model
    "home": ("gpt2", "#model-picture .share"), "attention": ("gpt2", LADDER),
    "norm": ("gpt2", "#component"), "mlp": ("gpt2", "#unit"),
    "order": ("gpt2", "#verdict-on [data-error]"), "generate": ("gpt2", "[data-part=surprise]"),
    "compress": ("gpt2", "[data-part=sizes] tr[data-p]"), "stream": ("gpt2", "table.lens"),
    "compare": ("gpt2", "[data-kl]"), "space": ("gpt2", "#near td"),
    "classify": ("classifier", "#complete"), "fill": ("bert", "[data-total]"),
    "translate": ("original", "#rowsum"), "architectures": ("gpt2", "[data-output]"),
}  # fmt: skip
OF_NO_TEXT = r"^(input|.*model\.|.*masking\.|table\(|.*similarity)"
NONE_BUT = """sources => [...document.querySelectorAll('main [data-source]')]
  .every(each => RegExp(sources).test(each.dataset.source))"""


@pytest.mark.parametrize("view", REFUSED)
def test_refused_text_leaves_no_numbers_of_the_one_before(open_visit, view):
    model, ready = REFUSED[view]
    task = {"task": view} if view in ("classify", "fill", "translate") else {}
    with open_visit(check=False) as visit:  # the browser reports the status of a refusal
        page = visit.go("tasks" if task else view, model=model, text=TEXT, ready=ready, **task)
        page.wait_for_function(STILL)
        box = "#prompt" if view == "generate" else "#text"
        page.fill(box, "the cat " * 900)
        page.press(box, "Enter") if view != "translate" else page.click("#run")
        page.wait_for_selector("main [role=alert]")
        # Other panels have requests of their own, and keep their numbers until these are refused.
        page.wait_for_function(NONE_BUT, arg=OF_NO_TEXT)
        page.wait_for_function(STILL)
        assert page.evaluate(NONE_BUT, OF_NO_TEXT)


# --- what is said of a model ----------------------------------------------------------------


def test_sentences_fit_the_model(visit):
    page = visit.go("stream", model="gpt2", ready="#many")
    assert "what was there stays" in page.inner_text(".lesson")
    assert page.inner_text("#many").endswith("of at most 64 tokens")  # of 512 that the server reads
    page = visit.go("stream", model="original", ready="#residual")
    assert page.locator("#residual").get_attribute("data-norm") == "post"
    lesson = page.inner_text(".lesson")
    assert "normalized" in lesson
    assert "what was there stays" not in lesson
    page = visit.go("compare", model="classifier", ready="[data-kl]")
    assert page.locator("h2:has-text('predicted labels')").count() == 1
    assert "token" not in page.inner_text("[data-part=kl]")
    page = visit.go(model="xl", text=TEXT, ready="#projection")
    assert "content bias" in page.inner_text("#projection")
    numbers = page.locator("[data-part=text] .tokens i").all_inner_texts()
    assert numbers == [str(n) for n in range(16, 22)]
    page = visit.go("order", model="modern", ready="pre.code")
    assert "class Rotary" in page.inner_text("pre.code")
    page = visit.go("tasks", task="fill", model="bert", ready="#policy")
    assert "40 %" in page.inner_text("#policy")


def test_typed_mask_gets_predictions(visit):
    page = visit.go("tasks", task="fill", model="bert", text="the [MASK] sat", ready=".card")
    assert page.locator(".card").count() == 1
    assert "2" in page.inner_text(".card h3")
    assert "It was" not in page.inner_text(".card")


# --- runs -----------------------------------------------------------------------------------


@pytest.fixture
def growing(explorer_server, tiny, monkeypatch):
    monkeypatch.setattr("clearformer.explore.runs.SILENT_SECONDS", 1e9)
    folder = explorer_server.runs / "growing"
    shutil.copytree(explorer_server.runs / "gpt2", folder)
    (folder / "metrics.jsonl").unlink()
    tiny.write_metrics(folder, 1)
    yield folder
    shutil.rmtree(folder)


def test_training_page_follows_what_runs(growing, visit, tiny):
    page = visit.go("training", ready="#summary[data-step='1']")
    assert page.input_value("#model") == "growing"  # neither the first, nor one that has ended
    # A single point is drawn, and called what it is.
    assert page.inner_text("#summary") == "loss 3.00 at step 1"
    page.wait_for_selector("[data-part=frames] figcaption")
    assert page.locator("#frame").get_attribute("max") == "1"
    shutil.rmtree(growing / "checkpoints" / "step-10")  # as the rotation of a run does
    page.focus("#frame")
    page.keyboard.press("End")
    page.keyboard.press("Home")
    page.wait_for_function("() => !document.querySelector('#frame')")
    assert page.locator("[role=alert]").count() == 0
    visit.errors.clear()  # the browser's own word about the answer 404
    page = visit.go("training", model="gpt2", ready="#other-run")
    page.click("#other-run")
    page.wait_for_selector("#summary[data-step='1']")


# --- saved pages ----------------------------------------------------------------------------


@pytest.fixture
def reopened(visit, new_page, tmp_path):
    """Saves the page that is shown, and opens the file without a network."""
    paths = (tmp_path / f"{n}.html" for n in itertools.count())

    def reopen(page):
        page.wait_for_function(STILL)
        page.wait_for_timeout(200)
        page.wait_for_function(STILL)
        with page.expect_download() as waiting:
            page.click("header button:has-text('Save')")
        path = next(paths)
        waiting.value.save_as(path)
        saved = new_page(offline=True)
        saved.goto(path.as_uri())
        return saved

    return reopen


def test_saved_pages_offer_what_they_hold(visit, reopened, loaded):
    page = visit.go(model="gpt2", text=TEXT, ready=LADDER)
    saved = reopened(page)
    saved.wait_for_selector(LADDER)
    # Another text would stand above numbers of this one.
    assert saved.locator("#text").get_attribute("readonly") is not None
    assert saved.locator("#run, #mask, #probe").count() == 0
    heads = saved.locator("[data-part=heads] .grid button")
    assert heads.evaluate_all("all => all.every(each => !each.disabled)")
    heads.nth(3).click()
    saved.wait_for_selector("#caption:has-text('layer 1, head 1')")
    chosen = page.locator("[data-part=text] .tokens button[aria-pressed=true]")
    i = chosen.get_attribute("aria-label")
    wanted = trace(loaded("gpt2").model, TEXT).get("weights", 1, 1)[int(i.split()[0])]
    script = "all => all.map(each => Number(each.dataset.value))"
    shown = saved.eval_on_selector_all(LADDER, script)
    assert shown == pytest.approx(wanted.tolist(), abs=1e-6)

    page = visit.go("compare", model="gpt2", text=TEXT, ready="[data-part=three] .heat")
    saved = reopened(page)
    saved.wait_for_selector("[data-part=three] .heat")
    assert saved.locator("[data-part=three] .heat").count() == 3
    saved.locator("[data-part=heads] .grid button").nth(2).click()
    saved.wait_for_selector("h2:has-text('layer 1, head 0')")
    assert saved.locator("[data-part=three] .heat").count() == 3

    page = visit.go("generate", model="gpt2", prompt="the cat", length=5, ready=BARS)
    page.click("#write")
    page.wait_for_selector("h2:has-text('after 5 more')")
    text, bars = page.inner_text("#written"), page.inner_text("#bars")
    saved = reopened(page)
    saved.wait_for_selector("h2:has-text('after 5 more')")
    saved.wait_for_selector(BARS)
    assert (saved.inner_text("#written"), saved.inner_text("#bars")) == (text, bars)
    assert saved.locator("#write").count() == 0


# --- layout ---------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1440, 1720])
@pytest.mark.parametrize("view", ["attention", "norm", "mlp"])
def test_code_is_sixty_characters_wide(open_visit, width, view):
    with open_visit(viewport={"width": width, "height": 900}) as visit:
        page = visit.go(view=view, model="gpt2", ready="pre.code")
        wide = """pre => {
          const probe = document.createElement('span');
          probe.textContent = 'x'.repeat(60);
          pre.append(probe);
          const need = probe.getBoundingClientRect().width;
          probe.remove();
          const style = getComputedStyle(pre);
          const edges = parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
          return pre.clientWidth - edges >= need;
        }"""
        assert page.locator("pre.code").evaluate(wide)
        # Nothing is cut off at the side of a panel.
        clipped = """() => [...document.querySelectorAll('.sheet')].filter(each =>
          [...each.querySelectorAll('td, th, p, dd, button')].some(inner =>
            !inner.closest('.scroll, .hidden, .long, .grid, .tokens, [aria-hidden]') &&
            inner.getBoundingClientRect().right > each.getBoundingClientRect().right + 1))
          .map(each => each.ariaLabel)"""
        assert page.evaluate(clipped) == []


def test_long_text_is_one_tab_stop(visit):
    page = visit.go(model="generator", text="the cat sat on the mat and the", ready=LADDER)
    stops = "all => all.filter(each => each.tabIndex >= 0).length"
    assert page.eval_on_selector_all("[data-part=text] .tokens button", stops) == 1
    page.focus("[data-part=text] .tokens button[tabindex='0']")
    before = page.inner_text("#caption")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "old => document.querySelector('#caption').innerText !== old", arg=before
    )
