"""Classes, masked tokens and vectors of texts."""

import pytest
import torch

import clearformer as cf


def test_classify(runs):
    model = cf.load(runs / "classifier")
    one = model.classify("a good film")
    assert one.label in ("good", "bad")
    assert sum(one.probabilities.values()) == pytest.approx(1)
    assert model.classify(["a good film"]) == [one]
    assert model.classify([]) == []
    ids = model.tokenizer.encode("a good film").tolist()
    assert model.classify(ids).probabilities == one.probabilities
    with pytest.raises(ValueError, match=r"classifier: it can classify and embed, not fill$"):
        model.fill("a [MASK]")
    with pytest.raises(ValueError, match=r"^a text has the id 99999, but"):
        model.classify([99999])


def test_fill(runs):
    model = cf.load(runs / "masked")
    one = model.fill("1 [MASK] of ale", top_k=3)
    assert [len(each) for each in one] == [3]
    assert model.fill(["1 [MASK] of ale", "[MASK] [MASK]"], top_k=3)[0] == one
    assert model.fill([]) == []
    ids = model.tokenizer.encode("1 [MASK] of ale").tolist()
    assert model.fill(ids, top_k=3) == one
    with pytest.raises(ValueError, match="top_k is 0, but it must be from 1 to"):
        model.fill("[MASK]", top_k=0)
    with pytest.raises(ValueError, match=r"not generate$"):
        model.generate("x")


def test_embed(runs, generator):
    one = generator.embed("a text")
    assert one.shape == (16,)
    torch.testing.assert_close(generator.embed(["a text", "b"])[0], one)
    torch.testing.assert_close(generator.embed(list(b"a text")), one)
    assert generator.embed([]).shape == (0, 16)
    assert one.norm() == pytest.approx(1)
    assert generator.embed("a text", normalize=False).norm() != pytest.approx(1)
    with pytest.raises(ValueError, match="`batch_size` is -1, but it must be at least 1"):
        generator.embed(["a", "b"], batch_size=-1)
    with pytest.raises(ValueError, match="`pool` is 'x', but it must be one of mean"):
        generator.embed("a", pool="x")
    with pytest.warns(UserWarning, match="1 of 1 texts were cut to 24 tokens"):
        generator.embed("x" * 30)
