"""Changes on the Attention page: every number is that of the same edit in Python."""

import pytest
import torch
import torch.nn.functional as F

from clearformer.explore.trace import trace
from clearformer.interventions import attention, edit, head, mlp, point, residual

TEXT = "the cat sat on the mat"
READY = "#edit-top td[data-after]"
QUIET = "() => !document.querySelector('.ghost, .wait')"


def answered(visit, act):
    """Do something, and wait for the answer of the server to be shown."""
    with visit.page.expect_response(lambda response: "/edit" in response.url) as waited:
        act()
    moved = waited.value.json()["moved"]
    visit.page.wait_for_function(
        "moved => document.querySelector('#edit-moved').dataset.value === String(moved)", arg=moved
    )


def expected(model, text, i, **changes):
    """Probabilities at a position and the loss, as Python computes them."""
    with edit(model, **changes):
        found = trace(model, text)
    ids = torch.tensor(found.input.queries("self"))
    return found.logits[i].softmax(-1), float(F.cross_entropy(found.logits[:-1], ids[1:]))


def compare(visit, probabilities, loss):
    shown = visit.numbers("#edit-top td[data-after]", "data-after")
    most = probabilities.topk(3).values.tolist()
    assert all(min(abs(each - value) for each in shown) < 1e-6 for value in most)
    assert visit.numbers("#edit-loss", "data-after")[0] == pytest.approx(loss, abs=1e-5)


@pytest.mark.parametrize("family", ["gpt2", "modern"])
def test_heads_are_switched_off_by_a_click(visit, explorer_server, family):
    page = visit.go(model=family, text=TEXT, i=3, ready=READY)
    model = explorer_server.models[family]
    unchanged, loss = expected(model, TEXT, 3)
    compare(visit, unchanged, loss)
    assert abs(visit.numbers("#edit-moved")[0]) < 1e-6
    button = page.locator("[data-head='self.1.0']")
    answered(visit, button.click)
    assert button.get_attribute("aria-pressed") == "false"
    compare(visit, *expected(model, TEXT, 3, zero=head(1, 0)))
    answered(visit, page.locator("[data-head='self.0.m']").click)
    compare(visit, *expected(model, TEXT, 3, zero=[head(1, 0), mlp(0)]))
    assert "off=self.1.0%2Cself.0.m" in page.url
    answered(visit, page.locator("#reset").click)
    compare(visit, unchanged, loss)
    assert page.locator("#reset").is_disabled()


def test_an_attention_weight_is_set(visit, explorer_server):
    page = visit.go(model="gpt2", text=TEXT, i=3, j=1, layer=1, head=1, ready=READY)
    field = page.locator("[data-part=change] input[type=number]")
    before = trace(explorer_server.models["gpt2"], TEXT).weights(1, 1)[3, 1]
    assert float(field.input_value()) == pytest.approx(float(before), abs=6e-5)  # four decimals

    def type_it():
        field.fill("0.75")
        field.blur()

    answered(visit, type_it)
    change = {attention(1, 1)[3, 1]: 0.75}
    compare(visit, *expected(explorer_server.models["gpt2"], TEXT, 3, weights=change))
    assert page.locator("[data-part=change] .cells li").count() == 1
    # The address brings the change back.
    page.reload()
    page.wait_for_selector("[data-part=change] .cells li")
    page.wait_for_selector(READY)
    compare(visit, *expected(explorer_server.models["gpt2"], TEXT, 3, weights=change))


def test_an_attention_weight_is_dragged(visit, explorer_server):
    model = explorer_server.models["gpt2"]
    page = visit.go(model="gpt2", text=TEXT, i=3, j=0, layer=1, head=1, ready=READY)
    page.wait_for_function(QUIET)  # what is above would move the bars when it arrives
    bar = page.locator("[data-part=change] [data-key='1']")
    bar.scroll_into_view_if_needed()
    before = float(bar.get_attribute("aria-valuenow"))
    bar.click()  # chooses the key, and sets nothing
    assert page.locator("[data-part=change] .cells li").count() == 0
    box = bar.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def drag():
        page.mouse.move(x, y)
        page.mouse.down()
        # In one step, so that the server is asked once.
        page.mouse.move(x, y - 0.3 * box["height"])

    answered(visit, drag)
    page.mouse.up()
    weight = float(bar.get_attribute("aria-valuenow"))
    assert weight == pytest.approx(before + 0.3, abs=0.03)
    page.wait_for_selector("[data-part=change] .cells li")
    compare(visit, *expected(model, TEXT, 3, weights={attention(1, 1)[3, 1]: weight}))
    # The same by keys, and another key by ← →.
    answered(visit, lambda: bar.press("ArrowDown"))
    lower = float(bar.get_attribute("aria-valuenow"))
    assert lower == pytest.approx(weight - 0.05, abs=1e-6)
    bar.press("ArrowRight")
    page.wait_for_function("() => document.activeElement.dataset.key === '2'")
    compare(visit, *expected(model, TEXT, 3, weights={attention(1, 1)[3, 1]: lower}))


def test_values_of_another_text_are_put_in(visit, explorer_server):
    other = "the dog sat on the mat"
    model = explorer_server.models["generator"]
    page = visit.go(model="generator", text=TEXT, i=20, layer=1, ready=READY)
    page.fill("#other", other)
    answered(visit, page.locator("#patch").click)
    recorded = trace(model, other)
    compare(visit, *expected(model, TEXT, 20, replace={residual(1): recorded}))
    answered(visit, lambda: page.select_option("#patch-where", index=1))
    compare(visit, *expected(model, TEXT, 20, replace={residual(1).at(20): recorded}))
    answered(visit, lambda: page.select_option("#patch-stage", "attn_out"))
    change = {point("attn_out", 1).at(20): recorded}
    compare(visit, *expected(model, TEXT, 20, replace=change))
    # The address brings all of it back.
    page.reload()
    page.wait_for_selector(READY)
    assert page.input_value("#patch-stage") == "attn_out"
    compare(visit, *expected(model, TEXT, 20, replace=change))


def test_a_text_of_another_length_is_refused_in_a_sentence(open_visit):
    with open_visit(check=False) as visit:
        page = visit.go(model="generator", text=TEXT, ready=READY)
        page.fill("#other", "short")
        page.click("#patch")
        page.wait_for_selector("[data-part=change] [role=alert]")
        assert "as many tokens" in page.inner_text("[data-part=change] [role=alert]")


@pytest.mark.parametrize("family", ["classifier", "bert", "original", "xl", "sparse"])
def test_every_kind_of_model_can_be_changed(visit, family):
    page = visit.go(model=family, text=TEXT, ready=READY)
    answered(visit, page.locator("[data-part=change] .head").first.click)
    assert visit.numbers("#edit-moved")[0] >= 0
