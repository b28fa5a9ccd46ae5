"""The page of a watched module in a browser, from a file."""

import pytest
import torch
from torch import nn

import clearformer as cf

HOSTILE = '</script><img src=x onerror="window.ran = 1">{{7*7}}<!--'


def test_hostile_names_are_shown_as_text(new_page, tmp_path):
    """A module's class, the names of its parts and the words come from anybody."""
    torch.manual_seed(0)
    kind = type(HOSTILE, (nn.Module,), {"forward": lambda self, x: self._modules[HOSTILE](x, x, x)})
    module = kind()
    # As a module's own code may: add_module would refuse the dot in a name.
    module._modules[HOSTILE] = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(1, 2, 8)
    seen = cf.watch(module)
    with torch.no_grad():
        seen(x)
    seen.save(tmp_path / "watched.html", [HOSTILE, "\u202e<b>x</b>"])
    page = new_page(offline=True)
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    page.goto((tmp_path / "watched.html").as_uri())
    page.wait_for_selector("#watched-weight")
    assert HOSTILE in page.inner_text("h2")
    assert HOSTILE in page.locator("#watched option").first.text_content()
    assert "onerror" in page.inner_text("#watched-weight")
    assert page.locator("main img, main b:has-text('x')").count() == 0
    assert page.evaluate("window.ran") is None
    assert problems == []


def test_weights_are_those_of_the_module(new_page, tmp_path):
    torch.manual_seed(0)
    module = nn.MultiheadAttention(16, 2, batch_first=True).eval()
    x = torch.randn(1, 3, 16)
    seen = cf.watch(module)
    with torch.no_grad():
        _, weights = seen(x, x, x, average_attn_weights=False)
    seen.save(tmp_path / "watched.html", ["the", "cat", "sat"])
    page = new_page(offline=True)
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto((tmp_path / "watched.html").as_uri())
    page.wait_for_selector("#watched-weight")
    shown = float(page.get_attribute("#watched-weight", "data-value"))
    assert shown == pytest.approx(float(weights[0, 0, 0, 0]), abs=1e-6)
    page.click("button[aria-label='head +']")
    page.wait_for_function(
        "old => document.querySelector('#watched-weight').dataset.value !== old", arg=str(shown)
    )
    shown = float(page.get_attribute("#watched-weight", "data-value"))
    assert shown == pytest.approx(float(weights[0, 1, 0, 0]), abs=1e-6)
    assert "the attends to the" in page.inner_text("#watched-weight")
    assert page.locator("nav a").count() == 1
    assert problems == []


def test_page_uses_the_whole_width(new_page, tmp_path):
    """No step of the course stands beside it."""
    module = nn.MultiheadAttention(16, 2, batch_first=True)
    x = torch.randn(1, 3, 16)
    seen = cf.watch(module)
    with torch.no_grad():
        seen(x, x, x)
    seen.save(tmp_path / "watched.html", ["the", "cat", "sat"])
    page = new_page(offline=True, viewport={"width": 1440, "height": 900})
    page.goto((tmp_path / "watched.html").as_uri())
    page.wait_for_selector("#watched-weight")
    assert page.locator("[data-part=watched]").bounding_box()["width"] > 1200
