"""The Order page: without positions the outputs move with their words (V7, V8)."""

import pytest


def errors(visit):
    return [
        visit.numbers(f"#verdict-{name} [data-error]", "data-error")[0] for name in ("off", "on")
    ]


@pytest.mark.parametrize("family", ["gpt2", "classifier", "xl"])
def test_shuffle_is_equivariant_only_without_positions(visit, family):
    page = visit.go("order", model=family, text="the cat sat on the mat", ready="#verdict-off b")
    page.wait_for_selector("#verdict-on b")
    page.click("#shuffle")
    page.wait_for_function("() => location.hash.includes('order=')")
    page.wait_for_load_state("networkidle")
    off, on = errors(visit)
    assert off < 1e-5
    assert on > 1e-3


def test_causal_mask_breaks_equivariance(visit):
    page = visit.go("order", model="gpt2", text="the cat sat on the mat", ready="#verdict-off b")
    page.select_option("#ordermask", "model")
    page.wait_for_function(
        "() => Number(document.querySelector('#verdict-off [data-error]').dataset.error) > 1e-3"
    )


def test_words_are_moved_by_arrow_keys(visit):
    page = visit.go(
        "order", model="gpt2", text="the cat sat", order="0,1,2,3", ready=".word button"
    )
    words = page.locator(".word button bdi").all_inner_texts()
    page.locator(".word button").first.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => location.hash.includes('order=1')")
    page.wait_for_function(
        "first => document.querySelector('.word button bdi').textContent !== first", arg=words[0]
    )


def test_position_similarity_map_is_symmetric(visit):
    page = visit.go("order", model="gpt2", ready="[data-part=places] [role=application]")
    assert "1.0000" in page.inner_text("[data-part=places] figcaption")
