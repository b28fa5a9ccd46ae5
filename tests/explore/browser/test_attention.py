"""The Attention page shows the numbers of the model (V1 V2 V3 V5 V6 V14 V15 V20)."""

import inspect
import math

import pytest
import torch

from clearformer.core import basic
from clearformer.explore.trace import trace

TEXT = "the cat sat on the mat"
HEAT = "figure.heat"
LADDER = "table.ladder tbody td[data-stage=weights]"


def row(visit, stage):
    return torch.tensor(visit.numbers(f"table.ladder td[data-stage={stage}]"))


def close(shown, wanted, tolerance=1e-6):
    assert torch.equal(shown.isinf(), wanted.isinf())
    finite = ~wanted.isinf()
    assert (shown[finite] - wanted[finite]).abs().max() <= tolerance


@pytest.mark.parametrize("family", ["gpt2", "modern", "bert", "sparse"])
def test_ladder_matches_trace(visit, explorer_server, family):
    page = visit.go(model=family, text=TEXT, layer=1, head=1, i=3, ready=LADDER)
    stages = ["scores_raw", "scores_scaled", "scores_masked", "weights"]
    found = trace(explorer_server.models[family], TEXT, capture=[*stages, "head_out"])
    for stage in stages:
        wanted = found.get(stage, layer=1, head=1)[3].float()
        close(row(visit, stage), wanted, 1e-5 if stage == "scores_raw" else 1e-6)
    shown = torch.tensor(visit.numbers("#output li"))
    close(shown, found.get("head_out", layer=1, head=1)[3].float())
    assert page.inner_text("table.ladder [data-sum]") == "1.000"
    # A4, on the page's own data
    width = found.get("head_out", layer=1, head=1).shape[-1]
    raw, scaled = row(visit, "scores_raw"), row(visit, "scores_scaled")
    assert (scaled * math.sqrt(width) - raw).abs().max() < 1e-5


def test_future_keys_show_minus_infinity_then_zero(visit):
    page = visit.go(model="gpt2", text=TEXT, i=2, ready=LADDER)
    words = page.locator("table.ladder td[data-stage=scores_masked]").all_inner_texts()
    assert words[3:] == ["−∞"] * len(words[3:])
    assert "−∞" not in words[:3]
    assert set(page.locator(LADDER).all_inner_texts()[3:]) == {"0"}
    shown = page.locator("table.ladder td[data-stage=scores_scaled]").all_inner_texts()
    for text, value in zip(shown, row(visit, "scores_scaled").tolist(), strict=True):
        assert abs(float(text.replace("−", "-")) - value) <= 5e-3 + 1e-9


def test_xl_bias_has_its_own_row(visit, explorer_server):
    visit.go(model="xl", text=TEXT, ready=LADDER)
    scaled, bias, masked = (
        row(visit, stage) for stage in ("scores_scaled", "bias", "scores_masked")
    )
    seen = ~masked.isinf()
    assert (scaled + bias - masked)[seen].abs().max() < 1e-5


def test_cross_attention_rows_sum_to_one(visit):
    page = visit.go(model="original", part="cross", ready=LADDER)
    assert page.inner_text("table.ladder [data-sum]") == "1.000"
    assert page.input_value("#part") == "cross"


def test_basic_attention_matches_formula(visit):
    page = visit.go(sub="plain", ready="input[data-n='0'][data-d='1']")
    page.fill("input[data-n='1'][data-d='2']", "-1.7")
    script = "all => all.map(each => Number(each.value))"
    shape = (-1, 4)  # the words of the text
    x = torch.tensor(page.eval_on_selector_all("input[data-n]", script), dtype=torch.double)
    wanted = basic.attend(x.view(shape))
    shown = torch.tensor(visit.numbers("output[data-n]"), dtype=torch.double).view(shape)
    assert x.view(shape)[1, 2] == -1.7
    assert (shown - wanted).abs().max() < 1e-6


def test_products_and_projection_sum_to_value(visit, explorer_server):
    page = visit.go(model="gpt2", text=TEXT, layer=0, head=1, i=4, j=2, stage="scores_raw", d=3,
                    ready="#projection b[data-value]")  # fmt: skip
    found = trace(explorer_server.models["gpt2"], TEXT, capture=["scores_raw", "q_proj"])
    wanted = float(found.get("scores_raw", layer=0, head=1)[4, 2])
    assert abs(visit.numbers("#arithmetic b")[0] - wanted) < 1e-5
    assert abs(visit.numbers("p [data-sum]", "data-sum")[0] - wanted) < 1e-4
    component = float(found.get("q_proj", layer=0, head=1)[4, 3])
    assert abs(visit.numbers("#projection b")[0] - component) < 1e-5
    page.click("button.k:has(sub)")
    page.wait_for_function("() => location.hash.includes('which=k')")


def test_arrow_keys_move_query_and_update_address(visit):
    page = visit.go(model="gpt2", text=TEXT, layer=1, head=1, i=3, ready=LADDER)
    before = page.inner_text("#caption")
    page.focus("table.ladder td button[tabindex='0']")
    page.keyboard.press("ArrowDown")
    page.wait_for_function("() => new URLSearchParams(location.hash.slice(1)).get('i') === '4'")
    assert page.inner_text("#caption") != before
    moved = row(visit, "weights")
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector(LADDER)
    assert page.input_value("#text") == TEXT
    assert torch.equal(row(visit, "weights"), moved)
    state = dict(pair.split("=") for pair in page.url.split("#")[1].split("&"))
    assert (state["layer"], state["head"], state["i"]) == ("1", "1", "4")


def test_heat_map_is_operated_by_keys_and_announced(visit):
    page = visit.go(model="gpt2", text=TEXT, i=3, j=1, ready="[role=application]")
    page.focus("[role=application]")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("() => location.hash.includes('i=4') && location.hash.includes('j=0')")
    spoken = page.inner_text("figure.heat [aria-live]")
    assert spoken.startswith("query ")
    assert "weight 0." in spoken
    rows = page.locator("figure.heat table tr")
    assert rows.count() == page.locator("table.ladder thead th").count() - 1


def test_causality_probe(visit):
    page = visit.go(model="gpt2", text=TEXT, ready="#probe")
    page.click("#probe")
    page.wait_for_selector("[data-delta]")
    change = visit.numbers("[data-delta]", "data-delta")
    assert change[:-1] == [0.0] * (len(change) - 1)
    assert change[-1] > 0
    page.select_option("#mask", "none")
    page.wait_for_selector("[data-delta]", state="detached")
    page.click("#probe")
    page.wait_for_selector("[data-delta]")
    assert max(visit.numbers("[data-delta]", "data-delta")[:-1]) > 0


def test_draws_grid_of_144_heads(visit):
    text = ("to be or not to be that is the question " * 2)[:64]
    page = visit.go(model="twelve", text=text, ready=".grid button:nth-of-type(144) canvas")
    assert page.locator(".grid canvas").count() == 144
    page.wait_for_selector(LADDER)
    assert page.evaluate("document.querySelectorAll('*').length") < 3000


def test_thumbnails_are_sorted(visit):
    page = visit.go(model="twelve", sort="entropy", ready=".grid.sorted button small")
    shown = [text.split("· ")[1] for text in page.locator(".grid small").all_inner_texts()]
    assert shown == sorted(shown, key=float)


def test_nan_is_reported_and_not_drawn(visit):
    page = visit.go(model="nan", ready="#strange")
    assert "3 NaN in layer 1" in page.inner_text("#strange")


def test_hostile_tokens_are_not_interpreted(visit):
    hostile = "</script><img src=x onerror=alert(1)>"
    page = visit.go(model="modern", text=hostile, ready=LADDER)
    assert page.locator("img").count() == 0
    assert page.input_value("#text") == hostile
    assert not [url for url in visit.requests if url.endswith("/x")]


def test_too_long_text_shows_limit(visit):
    page = visit.go(model="gpt2", text="a b " * 400, ready="[role=alert]")
    assert "512" in page.inner_text("[role=alert]") or "64" in page.inner_text("[role=alert]")
    visit.errors.clear()  # the browser itself notes the 413


def test_shown_code_is_source_code(visit):
    page = visit.go(sub="plain", ready="pre.code")
    assert page.evaluate("document.querySelector('pre.code').textContent").strip() == (
        inspect.getsource(basic.attend).strip()
    )


def test_shapes_and_parameters(visit, explorer_server):
    page = visit.go(model="gpt2", ready="details:not(#course) summary")
    page.click("details:not(#course) summary")
    page.wait_for_selector("[data-total]")
    model = explorer_server.models["gpt2"].module
    total = sum(parameter.numel() for parameter in model.parameters())
    assert visit.numbers("[data-total]", "data-total") == [total]


def test_reduced_motion_disables_animation(open_visit):
    with open_visit(reduced_motion="reduce") as visit:
        page = visit.go(model="gpt2", ready=LADDER)
        page.click("#step")
        page.wait_for_function("() => location.hash.includes('stage=scores_raw')")
        style = "getComputedStyle(document.querySelector('table.ladder td')).animationName"
        assert page.evaluate(style) == "none"


def test_large_head_is_requested_row_by_row(visit):
    """A head above 4 MB, which the server rejects, is requested query by query."""
    page = visit.go(model="gpt2", text=TEXT, i=3, ready=LADDER)
    whole = row(visit, "weights")
    error = '{"error": {"code": "too_big", "message": "4.2 MB, limit 4"}}'
    refuse = {"status": 413, "content_type": "application/json", "body": error}
    page.route("**/head?*", lambda route: route.fulfill(**refuse))
    visit.go(model="gpt2", text=TEXT, i=3, ready=LADDER)
    assert torch.equal(row(visit, "weights"), whole)
    page.wait_for_selector("figure.heat canvas")
    visit.errors.clear()  # the browser itself notes the 413


def test_pair_filter_shows_attention_between_sentences(visit):
    text = "the cat sat [SEP] a good film"
    page = visit.go(model="bert", text=text, ready="figure.heat canvas")
    drawn = """() => {
        const canvas = document.querySelector('figure.heat canvas');
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        const shown = (n) => data[4 * n + 3] > 0;
        return { side: canvas.width, shown: [...Array(canvas.width ** 2).keys()].filter(shown) };
    }"""
    whole = page.evaluate(drawn)
    assert len(whole["shown"]) == whole["side"] ** 2
    page.select_option("#between", "01")
    page.wait_for_function("() => location.hash.includes('between=01')")
    page.wait_for_function(f"() => ({drawn})().shown.length < {len(whole['shown'])}")
    names = page.locator("figure.heat table th").all_inner_texts()
    first = next(n for n, name in enumerate(names) if "[SEP]" in name) + 1
    side = whole["side"]
    expected = [row * side + col for row in range(first) for col in range(first, side)]
    assert page.evaluate(drawn)["shown"] == expected
    assert "sentences" not in visit.go(model="gpt2", text=text, ready=LADDER).inner_text("main")


def test_narrow_rows_show_numbers_instead_of_names(visit):
    page = visit.go(model="generator", text="the cat sat on the mat and the ", ready=HEAT)
    assert page.locator("figure.heat .left span").count() == 0
    assert page.locator("figure.heat .left i").count() > 1
    page = visit.go(model="generator", text="the cat", ready=HEAT + " .left span")
    tall = page.locator("figure.heat .field").bounding_box()
    last = page.locator("figure.heat .left span").last.bounding_box()
    assert last["y"] + last["height"] <= tall["y"] + tall["height"] + 1


def test_word_pieces_can_be_merged(visit):
    page = visit.go(model="generator", text="the cat sat", ready=HEAT)
    many = page.locator(f"{HEAT} table th").count()
    assert many == len("the cat sat")
    page.get_by_label("join word pieces").check()
    page.wait_for_function(f"() => document.querySelectorAll('{HEAT} table th').length < {many}")
    names = [name.split()[-1] for name in page.locator(f"{HEAT} table th").all_inner_texts()]
    assert names == ["the", "·", "cat", "·", "sat"]
    shares = [float(text) for text in page.locator(f"{HEAT} table td").all_inner_texts()]
    assert sum(shares) == pytest.approx(1, abs=1e-3)
