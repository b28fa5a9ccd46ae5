"""Exported single files: open from disk, offline, in a frame, with the same numbers (A22 A23)."""

import html
import re

import pytest

LADDER = "table.ladder td[data-stage=weights]"


@pytest.fixture
def saved(visit, tmp_path):
    def save(view, ready, **state):
        page = visit.go(view, ready=ready, **state)
        page.wait_for_load_state("networkidle")
        page.wait_for_function("() => !document.querySelector('.ghost, .wait')")
        with page.expect_download() as waiting:
            page.click("header button:has-text('Save')")
        path = tmp_path / f"{view}.html"
        waiting.value.save_as(path)
        return path

    return save


def test_exported_file_shows_same_numbers_offline(new_page, visit, saved):
    path = saved("attention", LADDER, model="gpt2", text="the cat sat", layer=1, head=1, i=3)
    live = visit.numbers("table.ladder td[data-value]")
    text = path.read_text()
    assert path.stat().st_size <= 5 * 1024 * 1024
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert "default-src 'none'" in html.unescape(policy[1])
    page = new_page(offline=True)
    asked, errors = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector(LADDER)
    script = "all => all.map(each => each.dataset.value)"
    numbers = page.eval_on_selector_all("table.ladder td[data-value]", script)
    assert [float(each.replace("Infinity", "inf")) for each in numbers] == live
    # All queries of the head are inside: another one needs no server.
    page.focus("table.ladder td button[tabindex='0']")
    page.keyboard.press("ArrowUp")
    page.wait_for_function(
        "old => document.querySelector('table.ladder td[data-stage=weights]').dataset.value !== old"
        " || document.querySelector('#caption') !== null",
        arg=numbers[0],
    )
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert errors == []


def test_exported_file_works_in_sandboxed_frame(new_page, saved):
    path = saved("attention", LADDER, model="gpt2", text="the cat sat")
    page = new_page(offline=True)
    source = html.escape(path.read_text())
    page.set_content(f'<iframe sandbox="allow-scripts" width=1000 srcdoc="{source}"></iframe>')
    frame = page.frame_locator("iframe")
    frame.locator(LADDER).first.wait_for()
    assert frame.locator("#caption").inner_text()


@pytest.mark.parametrize(
    ("view", "state", "ready"),
    [
        ("order", {"model": "gpt2"}, "#verdict-on [data-error]"),
        ("generate", {"model": "gpt2"}, "#bars tr[data-p]"),
        ("space", {"model": "gpt2"}, "#near td"),
        ("stream", {"model": "gpt2"}, "table.lens"),
        ("training", {"run": "gpt2"}, "#summary"),
        ("architectures", {"model": "bert"}, ".three section:nth-child(1) [data-allowed]"),
    ],
)
def test_other_pages_can_be_exported(new_page, saved, view, state, ready):
    path = saved(view, ready, **state)
    page = new_page(offline=True)
    page.goto(path.as_uri())
    page.wait_for_selector(ready)
    assert page.locator("[role=alert]").count() == 0


def test_notebook_trace_shows_same_page(new_page, explorer_server):
    from clearformer.explore.trace import trace

    found = trace(explorer_server.models["gpt2"], "the cat sat", capture=["weights"])
    page = new_page(offline=True)
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.set_content(f"<h1>A notebook</h1>{found._repr_html_()}")
    frame = page.frame_locator("iframe")
    frame.locator(LADDER).first.wait_for()
    shown = frame.locator(LADDER).evaluate_all("all => all.map(each => Number(each.dataset.value))")
    wanted = found.get("weights", layer=0, head=0)[-1].tolist()
    assert shown == pytest.approx(wanted, abs=1e-6)
    assert errors == []
