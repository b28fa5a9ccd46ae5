"""The Generate page: full distribution, exact draw, same text as the command line (V11 V12 V17)."""

import json
import math
import threading
import time
import urllib.request

import pytest
import torch

from clearformer.explore.generation import GeneratedText
from clearformer.explore.trace import trace
from clearformer.generate.sampling import Sampling, next_token

PROMPT = "the cat sat"
BARS = "#bars tr[data-p]"


def slide(page, name, value):
    page.locator(name).evaluate(
        """(slider, value) => { slider.value = value;
           slider.dispatchEvent(new Event('input', {bubbles: true})); }""",
        str(value),
    )


def answers(visit):
    """Requests of a model's answers; the page may still be asking for its code lines."""
    return [url for url in visit.requests if "/api/traces" in url or "/api/generate" in url]


def logits(server, family, prompt=PROMPT):
    return trace(server.models[family], prompt, capture=["logits"]).get("logits")[-1].double()


def test_sliders_need_no_request(visit, explorer_server):
    page = visit.go("generate", model="generator", prompt=PROMPT, ready=BARS)
    page.wait_for_load_state("networkidle")
    wanted = logits(explorer_server, "generator").softmax(0)
    many = len(answers(visit))
    ids = [int(each) for each in visit.numbers(BARS, "data-id")]
    shown = torch.tensor(visit.numbers(BARS, "data-p"), dtype=torch.double)
    assert (shown - wanted[ids]).abs().max() < 1e-6
    assert abs(visit.numbers("#total", "data-total")[0] - 1) < 1e-9
    entropy = float(-(wanted * wanted.log2()).sum())
    assert abs(float(page.inner_text("#entropy").split()[-2]) - entropy) < 6e-3
    slide(page, "#temperature", 0)
    page.wait_for_function("() => document.querySelector('#kept').textContent.startsWith('1 ')")
    assert visit.numbers(f"{BARS}:first-child", "data-p") == [1.0]
    assert visit.numbers(f"{BARS}:first-child", "data-id") == [int(wanted.argmax())]
    slide(page, "#temperature", 2.5)
    slide(page, "#topp", 0.8)
    page.wait_for_timeout(150)
    assert len(answers(visit)) == many


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), [(1, 0, 1), (0.7, 5, 1), (1.3, 9, 0.7)])
def test_draw_interval_contains_uniform(visit, explorer_server, temperature, top_k, top_p):
    page = visit.go("generate", model="gpt2", prompt=PROMPT, temperature=temperature, topk=top_k,
                    topp=top_p, seed=7, ready="#draw[data-id]")  # fmt: skip
    u = visit.numbers("#draw", "data-u")[0]
    sampling = Sampling(temperature=temperature, top_k=top_k or None, top_p=top_p)
    drawn = next_token(logits(explorer_server, "gpt2"), sampling, u)
    assert visit.numbers("#draw", "data-id") == [drawn.id]
    low, high = (float(part) for part in page.inner_text("#draw .mono:last-child")[1:-1].split(","))
    assert low - 1e-4 <= u < high + 1e-4
    page.click("#one")
    page.wait_for_selector("#written button")
    assert visit.numbers("#written button", "data-id") == [drawn.id]


def test_same_seed_gives_text_of_command_line(visit, explorer_server, capsys):
    from clearformer.cli.main import main

    page = visit.go("generate", model="generator", prompt=PROMPT, seed=3, length=12,
                    temperature=0.9, ready=BARS)  # fmt: skip
    page.click("#write")
    page.wait_for_selector("#write")
    page.wait_for_function("() => document.querySelectorAll('#written button').length === 12")
    ids = [int(each) for each in visit.numbers("#written button", "data-id")]
    text = explorer_server.models["generator"].tokenizer.decode(ids)
    folder = explorer_server.runs / "generator"
    main(
        [
            "generate",
            str(folder),
            PROMPT,
            "--seed",
            "3",
            "--max-tokens",
            "12",
            "--temperature",
            "0.9",
        ]
    )
    assert text.strip() in capsys.readouterr().out


def test_text_streams_and_can_be_stopped(visit, explorer_server, monkeypatch):
    next_token, gate = GeneratedText.next_token, threading.Event()

    def held_back(text):
        """Otherwise a fast server would finish before a slow browser shows the text."""
        if len(text.row.text) >= 3:
            gate.wait(300)
        return next_token(text)

    monkeypatch.setattr(GeneratedText, "next_token", held_back)
    page = visit.go("generate", model="twelve", prompt=PROMPT, length=200, ready=BARS)
    page.click("#write")
    page.wait_for_function("() => document.querySelectorAll('#written button').length >= 2")
    assert page.locator("#stop").count() == 1  # still writing
    with urllib.request.urlopen(f"{explorer_server.url}/api/info") as answer:
        info = json.load(answer)
    assert info["limits"]["max_new_tokens"] >= 200
    assert page.locator("#stop").count() == 1  # others are answered meanwhile
    page.click("#stop")
    gate.set()
    many = page.locator("#written button").count()
    for _ in range(600):
        with urllib.request.urlopen(f"{explorer_server.url}/api/info") as answer:
            if json.load(answer)["generating"] == 0:
                break
        time.sleep(0.1)
    else:
        pytest.fail("the server still writes")
    assert page.locator("#written button").count() <= many + 1


def test_choosing_other_token_changes_text(visit):
    page = visit.go("generate", model="gpt2", prompt=PROMPT, length=4, ready=BARS)
    page.click("#write")
    page.wait_for_function("() => document.querySelectorAll('#written button').length === 4")
    page.wait_for_selector("#write")
    page.locator("#written button").nth(1).click()
    other = page.locator(".alternatives button[aria-pressed=false]").first
    other.click()
    assert page.locator("#written button").count() == 2
    page.click("#one")
    page.wait_for_function("() => document.querySelectorAll('#written button').length === 3")


def test_surprisal_is_mean_of_bits(visit, explorer_server):
    visit.go("generate", model="generator", prompt=PROMPT, ready="[data-mean]")
    model = explorer_server.models["generator"]
    ids = model.tokenizer.encode(PROMPT)
    logs = trace(model, PROMPT, capture=["logits"]).get("logits").double().log_softmax(-1)
    bits = [-float(logs[place, id]) / math.log(2) for place, id in enumerate(ids[1:])]
    assert abs(visit.numbers("[data-mean]", "data-mean")[0] - sum(bits) / len(bits)) < 1e-4


def test_model_that_writes_is_borrowed(visit):
    page = visit.go("generate", model="classifier", ready="#borrowed")
    assert "because “classifier” cannot do this" in page.inner_text("#borrowed")
    page.wait_for_selector("#bars tr[data-p]")
    page.click("nav.tabs a:has-text('Norm')")
    page.wait_for_selector("#component")
    assert "model=classifier" in page.url


def test_without_a_model_that_writes_advice_is_shown(visit):
    def only_classifiers(route):
        models = [each for each in route.fetch().json() if "classify" in each["tasks"]]
        route.fulfill(json=models)

    visit.page.route("**/api/models", only_classifiers)
    page = visit.go(
        "generate", model="classifier", ready="[aria-label='This model does not write text']"
    )
    assert "“classifier” (classifier) is not trained to continue" in page.inner_text("main .view")
    assert "clearformer train" in page.inner_text("pre")
