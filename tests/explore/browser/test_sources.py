"""Every number on every page names its source, and is what the source says, for every kind of
model."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

# Numbers that are names: of positions, layers, heads and steps (marked data-label), in titles, of
# lines of code, and those inside tokens (bdi), formulas and lessons.
COLLECT = r"""least => {
  if (document.querySelector('.ghost, .wait')) return null; // an answer is on its way
  const excused = '[data-label], h2, caption, bdi, math, .lesson, .code, pre, ' +
    'option:not([data-source])';
  const untold = [], told = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!/\d/.test(node.data) || parent.closest('script, style, noscript')) continue;
    const source = parent.closest('[data-source]');
    const excuse = parent.closest(excused);
    if (excuse && !(source && excuse.contains(source))) continue;
    if (!source) untold.push(node.data.trim() + ' in ' + parent.outerHTML.slice(0, 160));
  }
  for (const each of document.querySelectorAll('[data-source]'))
    if (!each.querySelector('[data-source]')) told.push([each.dataset.source, each.textContent]);
  return untold.length || told.length >= least ? {untold, told} : null;
}"""
KINDS = ("generator", "classifier", "bert", "original", "xl", "sparse", "modern")
WRITERS = ("generator", "xl", "sparse", "modern")
SAMPLES = {"classifier": "The film was good, and the end was a surprise", "original": "twenty-one"}
QUIET = "() => !document.querySelector('.ghost, .wait')"


@pytest.fixture
def still_visit(open_visit):
    """A visit without animation: what is drawn is drawn at once."""
    with open_visit(reduced_motion="reduce") as visit:
        yield visit


@pytest.fixture
def sweep(still_visit, loaded, explorer_server, recomputed):
    """Opens a page and computes every number on it again; returns how many there were."""

    def check(kind, view, ready, act=None, facts=None, target=None, ids=None, least=1, **state):
        page = still_visit.go(view, model=kind, ready=ready, **state)
        page.wait_for_function(COLLECT, arg=least)
        page.wait_for_timeout(100)  # panels that appear after the first answers are swept too
        changes = ("off", "set", "other", "patch", "layer", "i")
        given = {**(facts or {}), **{name: state[name] for name in changes if name in state}}
        if act:
            given |= act(page) or {}
        model = loaded(kind)
        ids = ids(model) if ids else given.pop("ids", None)
        names = recomputed.Names(model, SAMPLES.get(kind, "The cat sat on the mat"), ids=ids,
                                 target=target(model) if target else None,
                                 folder=explorer_server.runs / kind, facts=given)  # fmt: skip
        names.facts["open"] = lambda checkpoint: loaded(kind, checkpoint)
        names.facts["models"] = loaded
        # At one instant: nothing is on its way, and nothing is missing.
        found = page.wait_for_function(COLLECT, arg=least).json_value()
        assert found["untold"] == [], (view, state)
        wrong = []
        for source, text in found["told"]:
            if source == "input":
                continue  # typed by the reader
            try:
                problem = recomputed.disagreement(text, eval(source, {"__builtins__": {}}, names))
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            if problem:
                wrong.append(f"{source}: {problem}")
        assert wrong == [], f"{view} {state}: {len(wrong)} of {len(found['told'])}"
        return len(found["told"])

    return check


def start(model):
    """The decoder's input on pages where the target is empty: the start token."""
    return [model.model.generation.target_ids[0]] if "translate" in model.config.verbs else None


# --- pages of every kind of model -----------------------------------------------------------
#
# A new page is one more line here (or a test of its own below); `test_every_page_is_swept` fails
# without it. `ready` is what the page shows when its numbers are there; `act` may do something on
# the page, and returns what the reader chose, which expressions read from `facts`.


@dataclass(frozen=True)
class Swept:
    view: str
    ready: str
    act: Callable | None = None
    state: dict = field(default_factory=dict)
    kinds: tuple = KINDS
    least: int = 5  # numbers


def order(page):
    rows = page.locator(".weave .line").nth(1).locator("button i").all_inner_texts()
    kind_of = page.evaluate("() => document.querySelector('[aria-label=Positions]').innerText")
    kinds = ("learned", "rotary", "relative", "sinusoidal")
    return {"order": [int(n) for n in rows],
            "positions": next(each for each in kinds if each in kind_of)}  # fmt: skip


ALL = [
    Swept("home", "#model-picture .share", least=12),
    Swept("norm", "#component", state={"norm": "attention", "d": 3}, least=20),
    Swept("norm", "#component", state={"norm": "mlp", "layer": 1, "i": 0}, least=20),
    Swept("norm", "#component", state={"norm": "final"}, least=20),
    Swept("norm", "#component", state={"norm": "embedding"}, kinds=("bert",), least=20),
    Swept("norm", "#component", state={"norm": "cross", "part": "decoder", "i": 0},
          kinds=("original",), least=20),
    Swept("mlp", "#unit ~ .vectors", state={"layer": 1, "d": 5}, least=90),
    Swept("mlp", "#unit ~ .vectors", state={"part": "decoder", "i": 0}, kinds=("original",)),
    Swept("attention", "#edit-top td[data-after]", least=60),
    Swept("attention", "#edit-top td[data-after]", kinds=("generator", "modern"),
          state={"off": "self.1.0,self.0.m", "set": "self.0.1.3.1.0.75", "i": 3, "head": 1}),
    Swept("attention", "#edit-top td[data-after]", kinds=("generator",),
          state={"other": "The dog sat on the mat", "patch": "attn_out", "everywhere": "false",
                 "layer": 1, "i": 5}),
    # One segment of a memory is the whole text here.
    Swept("order", "#verdict-on [data-error]", order),
    Swept("stream", "table.lens td[data-id]", kinds=tuple(k for k in KINDS if k != "classifier")),
    Swept("stream", "#residual", kinds=("classifier",)),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_every_page_and_kind_of_model(sweep, kind, explorer_server):
    for page in ALL:
        if kind in page.kinds:
            sweep(kind, page.view, page.ready, page.act, target=start, least=page.least,
                  **page.state)  # fmt: skip
    newest = explorer_server.library.entry(kind).default_checkpoint()
    assert sweep(kind, "compare", "[data-kl]", facts={"a": newest, "b": newest}) > 10


def test_every_page_is_swept():
    """A page that is added to the explorer is added to the sweep."""
    web = Path(__file__).parents[3] / "web/src/views.ts"
    there = set(re.findall(r'{ id: "(\w+)"', web.read_text()))
    here = set(
        re.findall(r'(?:Swept|sweep)\((?:\w+, |"\w+", )?"(\w+)"', Path(__file__).read_text())
    )
    assert there - here == {"watched"}  # in saved files only: test_watched.py


@pytest.mark.parametrize("kind", [*KINDS, "gpt2"])
def test_numbers_of_maps(sweep, kind, explorer_server):
    text = {"text": SAMPLES.get(kind, "The cat sat on the mat")}
    count = sweep(kind, "space", "#near td", target=start, **text)
    positions = "#none" if kind in ("xl", "modern") else "#near td"
    count += sweep(kind, "space", positions, target=start, space="positions")
    texts = ["the cat sat", "a good film", "to be or not", "the cat and the dog"]
    count += sweep(kind, "space", "#near td", facts={"texts": texts}, target=start,
                   space="sentences", texts="\n".join(texts))  # fmt: skip
    if kind == "gpt2":  # the vectors of one checkpoint on the axes of another
        count += sweep(kind, "space", "#near td", target=start, checkpoint="step-10", **text)
    assert count > 30


@pytest.mark.parametrize("kind", WRITERS)
def test_numbers_of_generate_and_compression(sweep, kind, loaded):
    def write(page):
        page.click("#one")
        page.wait_for_selector("#written button")
        page.wait_for_selector("h2:has-text('after 1 more')")
        page.wait_for_function(QUIET)
        page.click("#written button")
        page.locator("#written button").first.evaluate("each => each.blur()")
        id = int(page.get_attribute("#written button", "data-id"))
        model = loaded(kind).model
        from clearformer.explore.traced_model import encode

        return {"drawn": [id], "ids": [*encode(model, "The cat sat on the mat"), id]}

    count = sweep(kind, "generate", "#draw[data-id]", write)
    count += sweep(kind, "compress", "[data-part=sizes] tr[data-p]", i=3)
    assert count > 70


def test_numbers_of_tasks(sweep):
    count = sweep("classifier", "tasks", "#complete", task="classify")

    def masked(page):
        pressed = page.locator("[data-part=text] .tokens button")
        flags = [each.get_attribute("aria-pressed") for each in pressed.all()]
        return {"masked": [n for n, flag in enumerate(flags) if flag == "true"]}

    count += sweep("bert", "tasks", "[data-total]", masked, task="fill")
    count += sweep("original", "tasks", "#rowsum", task="translate", i=1)
    assert count > 50


def test_numbers_of_architectures(sweep, still_visit):
    """Every kind of model once, in its column; then the masks of those that are not there."""
    ready = ".three section:nth-child(3) [data-output]"
    count = 0
    for encoder, decoder in (("bert", "xl"), ("classifier", "sparse")):
        count += sweep("modern", "architectures", ready, encoder=encoder, decoder=decoder,
                       archlayer=1, archhead=1)  # fmt: skip
    only_decoder(still_visit.page)
    count += sweep("modern", "architectures", "[data-missing=pair] ~ .part")
    assert count > 300


def only_decoder(page):
    """A library with one model, a decoder."""

    def fulfil(route):
        models = [each for each in route.fetch().json() if each["id"] == "modern"]
        route.fulfill(json=models)

    page.route("**/api/models", fulfil)


def test_numbers_of_training_and_lessons(sweep):
    count = sweep("gpt2", "training", "[data-part=frames] figcaption")
    count += sweep("gpt2", "compare", "[data-kl]", facts={"a": "step-20", "b": "step-10"})
    count += sweep("gpt2", "reach", "[data-count]")
    count += sweep("gpt2", "reach", "[data-reach]", reach="memory")
    count += sweep("gpt2", "attention", "[data-sd]", sub="root")

    def x(page):
        values = [float(each.input_value()) for each in page.locator("input[data-n]").all()]
        return {"x": [values[n : n + 4] for n in range(0, len(values), 4)]}

    count += sweep("gpt2", "attention", "output[data-n]", x, sub="plain")
    assert count > 200


@pytest.mark.parametrize("kind", ["generator", "original"])
def test_numbers_of_answers(sweep, kind):
    """What the course tells of its questions."""

    def show(page):
        page.click("#show-answer")
        page.wait_for_selector("#answer[data-right] [data-source]")

    sweep(kind, "attention", "#show-answer", show, target=start, step="ladder")
    sweep(kind, "stream", "#show-answer", show, target=start, step="what-parts-add")
    sweep(kind, "norm", "#show-answer", show, target=start, step="norm")
    sweep(kind, "mlp", "#show-answer", show, target=start, step="mlp")
    if kind == "generator":
        sweep(kind, "generate", "#show-answer", show, step="next-token")
        sweep(kind, "generate", "#show-answer", show, step="temperature")
        sweep(kind, "generate", "#show-answer", show, step="surprise")
        sweep(kind, "attention", "#show-answer", show, sub="root", step="root")
        sweep(kind, "reach", "#show-answer", show, step="reach")
        sweep(kind, "reach", "#show-answer", show, reach="memory", step="memory")


def test_disagreement_is_found(recomputed):
    """The comparison itself can fail."""
    assert recomputed.disagreement("−0.58", -0.5801) is None
    assert recomputed.disagreement("9 × 16", [9, 16]) is None
    assert recomputed.disagreement("1.2e−7", 1.23e-7) is None
    assert "0.58" in recomputed.disagreement("0.58", 0.5902)
    assert "2 numbers" in recomputed.disagreement("9 × 16", [9])
    assert recomputed.disagreement("EF BF BD", "98") is not None
