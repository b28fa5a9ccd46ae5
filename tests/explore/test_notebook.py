"""Traces in notebooks, without a kernel or a network."""

import html
import json
import re

import numpy as np
import pytest

from clearformer.builder import build
from clearformer.explore.arrays import unpack
from clearformer.explore.trace import trace


@pytest.mark.parametrize("family", ["gpt2", "xl", "original", "nan"])
def test_page_contains_numbers_of_trace(loaded, family):
    text = ("the cat", "a dog") if family == "original" else "the cat sat"
    found = trace(loaded(family).model, text)
    page = found.html(layer=1, head=1)
    payload = json.loads(re.search(r'id="payload">(.*?)</script>', page, re.DOTALL)[1])
    part = found.parts[0]
    heads = {key: each for key, each in payload["responses"].items() if "/head?" in key}
    # All of them fit.
    assert len(heads) == sum(len(found.layers(part)) for part in found.parts) * 2
    (head,) = [each for key, each in heads.items() if f"head=1&layer=1&part={part}" in key]
    np.testing.assert_array_equal(unpack(head["weights"]), found.get("weights", 1, 1, part).numpy())
    traced = payload["responses"]["POST /api/traces"]
    assert traced["id"] == payload["state"]["trace"]
    assert "GET /api/models" in payload["responses"]
    assert "GET /api/source?symbol=core.kernels.weights" in payload["responses"]


def test_page_marks_padding(loaded):
    page = trace(loaded("bert").model, "the cat", pad_to=8).html(layer=1)
    payload = json.loads(re.search(r'id="payload">(.*?)</script>', page, re.DOTALL)[1])
    head = next(each for key, each in payload["responses"].items() if "/head?" in key)
    weights = unpack(head["weights"])
    assert weights.shape == (8, 8)
    assert (weights[:, 4:] == 0).all()


def test_repr_html_is_sandboxed_frame(loaded):
    shown = trace(loaded("gpt2").model, "the cat")._repr_html_()
    inner = html.unescape(re.fullmatch(r'<iframe srcdoc="([^"]*)".*', shown, re.DOTALL)[1])
    assert inner.startswith("<!doctype html>")
    assert 'sandbox="allow-scripts"' in shown


def test_trace_saves_single_file(loaded, tmp_path):
    trace(loaded("gpt2").model, "the cat").save(tmp_path / "trace.html")
    assert (tmp_path / "trace.html").read_text().endswith("</html>\n")


def test_rejects_module_without_config(small):
    with pytest.raises(ValueError, match="this trace is of a module without a config"):
        trace(build(small("gpt2")), [1, 2]).html()
    found = trace(build(small("gpt2")), [1, 2])
    assert found.picture(1, 1).axes[0].get_title() == "model, self layer 1, head 1"
