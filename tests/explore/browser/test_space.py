"""Embeddings: the map is walked by keys, its axes stay over checkpoints, its texts stay text."""

CHOSEN_IS_NOT = "before => document.querySelector('#plane .chosen').dataset.index !== before"
QUIET = "() => !document.querySelector('.ghost, .wait')"
PLACES = """all => Object.fromEntries(all.map(each =>
  [each.dataset.index, [Number(each.dataset.x), Number(each.dataset.y)]]))"""


def places(page):
    page.wait_for_function(QUIET)
    return page.eval_on_selector_all("#plane [data-index]", PLACES)


def test_arrow_keys_choose_the_nearest_point(visit):
    page = visit.go("space", model="gpt2", ready="#near td")
    found = places(page)
    before = page.get_attribute("#plane .chosen", "data-index")
    page.focus("#plane")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(CHOSEN_IS_NOT, arg=before)
    after = page.get_attribute("#plane .chosen", "data-index")
    assert found[after][0] > found[before][0]
    page.wait_for_function(f"() => location.hash.includes('point={after}')")
    # The map is one stop of the Tab key, whatever it holds.
    page.keyboard.press("Tab")
    assert page.evaluate("() => !document.activeElement.closest('#plane')")
    # The neighbours of the point before are shown until those of this one arrive.
    page.wait_for_selector(f"#near td[data-source*='cosine({after},']")
    page.locator("#near button").first.click()
    page.wait_for_function(CHOSEN_IS_NOT, arg=after)


def test_axes_stay_those_of_one_checkpoint(visit):
    page = visit.go("space", model="gpt2", ready="#near td")
    last = places(page)
    page.fill("#frame", "0")  # step 10, whose weights are those of step 20 times 0.8
    page.wait_for_function("() => location.hash.includes('step-10')")
    page.wait_for_selector("figcaption [data-source*='step-10']")
    first = places(page)
    assert first.keys() == last.keys()
    one, other = list(first)[:2]
    for axis in (0, 1):
        moved = first[one][axis] - first[other][axis]
        assert abs(moved - 0.8 * (last[one][axis] - last[other][axis])) < 1e-5
    page.select_option("#axes", "step-10")
    page.wait_for_selector("figcaption [data-source*=\"'step-10', 'step-10'\"]")
    assert places(page) != first


def test_sentences_of_the_reader_are_shown_as_text(visit):
    hostile = "</script><img src=x onerror=alert(1)>"
    page = visit.go("space", model="modern", space="sentences", ready="#near td")
    page.on("dialog", lambda dialog: visit.errors.append(dialog.message))
    page.fill("#texts", f"to be\n{hostile}\n\nnot to be")
    page.click("#place")
    page.wait_for_function("() => document.querySelectorAll('#plane [data-index]').length == 3")
    page.wait_for_function(QUIET)
    assert page.locator(".view img").count() == 0
    assert hostile[:20] in page.inner_text(".view")
    assert visit.failed == []
