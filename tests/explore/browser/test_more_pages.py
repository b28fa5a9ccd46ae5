"""The Stream, Tasks, Reach and Compare pages."""

import math

import torch

from clearformer.explore.trace import trace

TEXT = "the cat sat on the mat"


def test_last_row_of_lens_is_model_output(visit, explorer_server):
    page = visit.go("stream", model="gpt2", text=TEXT, ready="table.lens tr.last td[data-id]")
    wanted = (
        trace(explorer_server.models["gpt2"], TEXT, capture=["logits"]).get("logits").argmax(-1)
    )
    assert visit.numbers("table.lens tr.last td", "data-id") == wanted.tolist()
    page.locator("table.lens td button").first.click()
    page.wait_for_function("() => location.hash.includes('stage=lens0')")


def test_residual_stream_is_sum_of_parts(visit):
    visit.go("stream", model="gpt2", text=TEXT, ready="#residual")
    assert visit.numbers("#residual", "data-error")[0] < 1e-5


def test_masking_and_unmasking_a_word(visit):
    page = visit.go("tasks", task="fill", model="bert", text=TEXT, masked="2", ready="[data-total]")
    first = visit.numbers(".card tr[data-p]", "data-p")
    assert sum(first) <= 1
    assert abs(visit.numbers(".card [data-total]", "data-total")[0] - 1) < 1e-6
    token = page.locator("[data-part=text] .tokens button").nth(4)
    token.click()
    page.wait_for_function("() => document.querySelectorAll('.card').length === 2")
    token.click()
    page.wait_for_function("() => document.querySelectorAll('.card').length === 1")
    assert visit.numbers(".card tr[data-p]", "data-p") == first


def test_cross_attention_rows_sum_to_one(visit):
    page = visit.go("tasks", task="translate", model="original", ready="#rowsum")
    assert abs(visit.numbers("#rowsum", "data-sum")[0] - 1) < 1e-5
    page.select_option("#part", "encoder")
    page.wait_for_function("() => location.hash.includes('sub=part')")


def test_padding_gets_zero_weight(visit):
    page = visit.go(model="original", part="cross", pad="14", ready="table.ladder td")
    special = page.locator("table.ladder thead th").all_inner_texts()
    weights = visit.numbers("table.ladder td[data-stage=weights]")
    masked = visit.numbers("table.ladder td[data-stage=scores_masked]")
    assert len(special) >= 12
    hidden = [weight for weight, score in zip(weights, masked, strict=True) if score == -torch.inf]
    assert hidden
    assert set(hidden) == {0.0}


def test_integrated_gradients_are_complete(visit):
    page = visit.go("tasks", task="classify", model="classifier", ready="#complete")
    assert visit.numbers("#complete", "data-error")[0] < 0.01
    before = page.inner_text("table.why tbody tr")
    page.select_option("#method", "occlusion")
    page.wait_for_function(
        "told => document.querySelector('table.why tbody tr')?.innerText !== told", arg=before
    )


def test_strided_reaches_every_position_in_two_layers(visit):
    page = visit.go("reach", n=64, stride=8, pattern="strided", ready="[data-count]")
    assert "708 connections of 2,080" in page.inner_text("#edges")
    assert visit.numbers("[data-layer='2']", "data-count") == [64]
    assert visit.numbers("[data-layer='1']", "data-count")[0] < 64


def test_reach_grows_by_one_memory_per_layer(visit):
    page = visit.go("reach", reach="memory", segment=8, memory=8, layers=3, ready="[data-reach]")
    assert visit.numbers("[data-distance]", "data-distance") == [32, 24, 16, 8, 0]
    assert sorted(visit.numbers("[data-reach]", "data-reach")) == [8, 16, 24]
    page.fill("#memory", "0")
    page.keyboard.press("Enter")
    page.locator("#memory").blur()
    page.wait_for_function("() => document.querySelector('[data-reach]').dataset.reach === '0'")
    assert set(visit.numbers("[data-reach]", "data-reach")) == {0.0}


def test_comparison_with_itself_is_zero(visit):
    page = visit.go("compare", model="gpt2", bcheckpoint="step-20", ready="[data-kl]")
    assert visit.numbers("#max", "data-max") == [0.0]
    assert set(visit.numbers("[data-kl]", "data-kl")) == {0.0}
    page.select_option("#bcheckpoint", "step-10")
    page.wait_for_function("() => Number(document.querySelector('#max').dataset.max) > 0")
    assert max(visit.numbers("[data-kl]", "data-kl")) > 0


def test_scaling_lesson_shows_standard_deviation(visit):
    visit.go(sub="root", width=64, ready="[data-sd]")
    raw, scaled = (float(text) for text in visit.page.locator("[data-sd]").all_inner_texts())
    assert 7 < raw < 9
    assert 0.9 < scaled < 1.1


def test_compress_page_bits_add_up_to_code_size(visit):
    page = visit.go("compress", model="gpt2", text=TEXT, ready="[data-part=sizes] tr[data-p]")
    bits = visit.numbers(".paper button", "data-bits")
    text, code, _ = visit.numbers("[data-part=sizes] tr", "data-p")
    assert text == len(TEXT)
    assert code == -(-sum(bits) // 8)
    page.locator(".paper button").nth(2).click()
    page.wait_for_function(
        "() => document.querySelectorAll('table.narrowing tbody tr').length === 3"
    )
    widths = visit.numbers("table.narrowing tbody tr", "data-width")
    assert [24 - math.log2(width) for width in widths] == bits[:3]
