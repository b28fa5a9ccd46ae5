"""The page of a watched module: the explorer's own, with the recorded weights in it."""

import json
import re

import numpy as np
import pytest
import torch
from torch import nn

import clearformer as cf
from clearformer.explore.arrays import unpack


@pytest.fixture
def seen():
    torch.manual_seed(0)
    module = nn.MultiheadAttention(16, 2, batch_first=True).eval()
    x = torch.randn(2, 3, 16)
    seen = cf.watch(module)
    seen(x, x, x)
    return seen


def payload(page):
    text = re.search(r'id="payload">(.*?)</script>', page, re.DOTALL)[1]
    return json.loads(text)


def test_page_holds_the_weights(seen):
    found = payload(seen.html(["a", "</script>", "c d"], row=1))
    assert found["view"] == "watched"
    watched = found["responses"]["GET /api/watched"]
    (one,) = watched["attentions"]
    np.testing.assert_array_equal(unpack(one["weights"]), seen.weights(0)[1].detach().numpy())
    assert [each["display"] for each in one["queries"]] == ["a", "</script>", "c·d"]
    assert watched["name"] == "MultiheadAttention"


def test_positions_where_no_words_are_given():
    """Words of another length are those of another attention, or a mistake."""
    module = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    seen = cf.watch(module)
    seen(torch.randn(1, 2, 8), *torch.randn(2, 1, 3, 8).unbind(0))
    found = payload(seen.html(["one", "two"]))
    one = found["responses"]["GET /api/watched"]["attentions"][0]
    assert [each["display"] for each in one["queries"]] == ["one", "two"]
    assert [each["display"] for each in one["keys"]] == ["0", "1", "2"]
    with pytest.raises(ValueError, match="tokens has 4 words, but the attentions are of 2, 3 tok"):
        seen.html(["a", "b", "c", "d"])


def test_saved_and_opened(seen, tmp_path, monkeypatch):
    seen.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == seen.html()
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    path = seen.explore()
    assert opened == [path.as_uri()]
    assert path.read_text() == seen.html()
    assert "<iframe" in seen._repr_html_()


def test_messages(seen, tmp_path):
    with pytest.raises(ValueError, match="row is 5, but the batch has rows 0 to 1"):
        seen.html(row=5)
    with pytest.raises(ValueError, match="cannot be written"):
        seen.save(tmp_path / "none" / "page.html")
    with pytest.raises(ValueError, match="no attention was recorded"):
        cf.watch(nn.Linear(2, 2)).html()
