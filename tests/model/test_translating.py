"""Translation from Python."""

import pytest

import clearformer as cf


def test_translate(runs):
    model = cf.load(runs / "translator")
    one = model.translate("one 3", max_tokens=5)
    assert isinstance(one, str)
    assert model.translate(["one 3", ""], max_tokens=5) == [one, ""]
    assert model.translate([]) == []
    ids = model.tokenizer.encode("one 3").tolist()
    assert model.translate(ids, max_tokens=5) == one
    best = model.translate("one 3", best=2, max_tokens=5)
    assert len(best) == 2
    assert model.translations(["one 3"], best=2, max_tokens=5)[0][0].score < 0
    with pytest.raises(ValueError, match=r"translator is a translator: it can translate, not gen"):
        model.generate("x")
    with pytest.raises(ValueError, match="`max_tokens` is 0, but it must be at least 1"):
        model.translate("one", max_tokens=0)
    with pytest.raises(ValueError, match="is a translator, which int8 does not support yet"):
        cf.load(runs / "translator", weights="int8")
