"""The page in other languages: chosen, remembered, in links, in saved files and in notebooks."""

import json
import re
from pathlib import Path

import pytest

WORDS = Path(__file__).parents[3] / "web" / "src"
LADDER = "table.ladder td[data-stage=weights]"
NUMBERS = "all => all.map(each => each.dataset.value)"


def said(language):
    return json.loads((WORDS / f"strings.{language}.json").read_text(encoding="utf-8"))


def shown(page):
    """The language of the document, and the name of the page that is open."""
    language = page.evaluate("document.documentElement.lang")
    return language, page.inner_text("nav [aria-current=page]")


@pytest.mark.parametrize("language", ["de", "es", "fr", "zh"])
def test_language_is_chosen_and_remembered(visit, language):
    page = visit.go("attention", model="gpt2", ready=LADDER)
    assert shown(page) == ("en", "Attention")
    numbers = page.eval_on_selector_all("table.ladder td[data-value]", NUMBERS)
    page.focus("#language")
    page.select_option("#language", language)
    page.wait_for_selector(f"html[lang^={language}]")
    page.wait_for_selector(LADDER)
    words = said(language)
    assert shown(page)[1] == words["views"]["attention"]
    step = page.get_attribute(".lesson h2", "data-step")
    assert page.inner_text(".lesson h2") == words["lessons"][step]["title"]
    assert page.evaluate("document.activeElement.id") == "language"
    # Numbers are written alike in every language.
    assert page.eval_on_selector_all("table.ladder td[data-value]", NUMBERS) == numbers
    assert f"lang={language}" in page.url
    page.goto("about:blank")
    page.goto(visit.url)  # without a language in the address
    page.wait_for_selector(f"html[lang^={language}]")
    page.wait_for_selector("#model-picture")
    assert shown(page)[1] == words["views"]["home"]
    assert page.input_value("#language") == language


def test_first_language_is_that_of_the_browser(open_visit):
    for locale, language in (("fr-CA", "fr"), ("zh-CN", "zh-Hans"), ("pt-BR", "en")):
        with open_visit(locale=locale) as visit:
            page = visit.go("reach", ready="[data-count]")
            assert shown(page)[0] == language
            assert "lang=" not in page.url  # a link without it suits the next reader


def test_link_names_a_language(open_visit):
    with open_visit(locale="fr-FR") as visit:
        page = visit.go("reach", lang="de", ready="[data-count]")
        assert shown(page) == ("de", said("de")["views"]["reach"])
    with open_visit(locale="fr-FR") as visit:
        page = visit.go("reach", lang="constructor", ready="[data-count]")
        assert shown(page)[0] == "fr"


def test_page_without_its_language_file_is_english(open_visit):
    with open_visit(check=False) as visit:
        visit.page.route("**/strings.de.json", lambda route: route.fulfill(status=404))
        page = visit.go("reach", lang="de", ready="[data-count]")
        assert shown(page) == ("en", "Long context")


def test_saved_file_carries_languages(new_page, open_visit, tmp_path):
    path = tmp_path / "saved.html"
    with open_visit(locale="de-DE") as visit:
        page = visit.go("attention", model="gpt2", text="the cat sat", ready=LADDER)
        page.wait_for_load_state("networkidle")
        live = page.eval_on_selector_all("table.ladder td[data-value]", NUMBERS)
        with page.expect_download() as waiting:
            page.click(f"header button:has-text('{said('de')['shell']['export']}')")
        waiting.value.save_as(path)
    page = new_page(offline=True, locale="en-US")
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector(LADDER)
    assert shown(page) == ("de", said("de")["views"]["attention"])
    assert page.eval_on_selector_all("table.ladder td[data-value]", NUMBERS) == live
    page.select_option("#language", "zh")
    page.wait_for_selector("html[lang^=zh]")
    page.wait_for_selector(LADDER)
    assert shown(page)[1] == said("zh")["views"]["attention"]
    assert errors == []


def test_error_is_named_in_the_language(open_visit):
    with open_visit(check=False) as visit:
        state = {"model": "gpt2", "lang": "de", "text": "a b " * 200}
        alert = visit.go("attention", ready="[role=alert]", **state).inner_text("[role=alert]")
    assert said("de")["errors"]["too_long"] in alert
    assert re.search(r"\d+ tokens, limit 64", alert)  # the server's sentence stands below


@pytest.mark.parametrize("language", ["de", "fr"])
def test_long_words_fit_a_phone(open_visit, language):
    with open_visit(viewport={"width": 390, "height": 900}) as visit:
        for view, ready in (("home", "#model-picture .strip"), ("generate", "#bars tr[data-p]")):
            page = visit.go(view, model="gpt2", lang=language, ready=ready)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
