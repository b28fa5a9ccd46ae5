"""`Model.attend`: one head of a trained model matches the trace and the module."""

import pytest
import torch

import clearformer as cf

TEXT = "the cat sat on the mat"
KINDS = ["generator", "gpt2", "bert", "classifier", "xl", "sparse", "modern"]


@pytest.fixture(scope="module")
def model(tiny_runs):
    return lambda name: cf.load(tiny_runs / name)


@pytest.mark.parametrize("kind", KINDS)
def test_matches_trace(model, kind):
    loaded = model(kind)
    found = loaded.attend(TEXT, layer=1, head=1)
    traced = loaded.trace(TEXT)
    torch.testing.assert_close(found.weights, traced.weights(layer=1, head=1), rtol=0, atol=0)
    assert found.weights.shape == (len(found.queries), len(found.keys))
    torch.testing.assert_close(found.weights.sum(-1), torch.ones(len(found.queries)))
    torch.testing.assert_close(found.stages["head_out"], found.weights @ found.stages["v"])
    assert f"{kind}, layer 1, head 1" in repr(found)


def test_shows_tokens_of_the_model(model):
    assert model("bert").attend(TEXT).queries[:3] == ["[CLS]", "the", "cat"]
    assert "".join(model("gpt2").attend("the cat").queries) == "the·cat"
    assert model("modern").attend("a b").keys == ["a", "·", "b"]


def test_keys_include_memory(model):
    found = model("xl").attend(TEXT)  # segments of 8, a memory of 8
    assert len(found.queries) == len(TEXT) - 16
    assert len(found.keys) == len(found.queries) + 8


@pytest.mark.parametrize("part", ["encoder", "decoder", "cross"])
def test_matches_trace_for_every_part_of_translator(model, part):
    loaded = model("original")
    found = loaded.attend(TEXT, part=part, target="a dog", layer=1)
    traced = loaded.trace((TEXT, "a dog"))
    torch.testing.assert_close(found.weights, traced.weights(1, 0, part), rtol=0, atol=0)
    assert (found.queries, found.keys) == (
        [each.replace(" ", "·") for each in traced.tokens(part)],
        [each.replace(" ", "·") for each in traced.key_tokens(part)],
    )
    assert f"{part} layer 1, head 0" in found.title


def test_target_defaults_to_own_translation(model):
    loaded = model("original")
    own = loaded.translate(TEXT, beam=1)
    found, expected = (loaded.attend(TEXT, part="cross", target=t) for t in (None, own))
    torch.testing.assert_close(found.weights, expected.weights, rtol=0, atol=0)


def test_applies_given_mask(model):
    weights = model("bert").attend(TEXT, mask="causal").weights
    assert (weights.triu(1) == 0).all()


def test_accepts_token_ids(model):
    loaded = model("modern")
    assert loaded.attend([97, 98]).weights.equal(loaded.attend("ab").weights)


def test_figure_has_a_label_for_each_token(model):
    found = model("bert").attend(TEXT)
    axes = found.picture().axes[0]
    assert len(axes.get_xticklabels()) == len(found.keys)


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        ("gpt2", {"layer": 2}, r"layer is 2, but .*gpt2 has layers 0 to 1"),
        ("gpt2", {"layer": -1}, r"layer is -1, but .*gpt2 has layers 0 to 1"),
        ("gpt2", {"head": 2}, r"head is 2, but .*gpt2 has heads 0 to 1"),
        ("gpt2", {"head": "a"}, r"`head` is 'a', but it must be a whole number"),
        ("gpt2", {"part": "cross"}, r"`part` is 'cross', but .*gpt2 has self: choose one of them"),
        ("gpt2", {"target": "a"}, r"`target` is for translators, but .*gpt2 is a generator"),
        ("gpt2", {"mask": "odd"}, r"mask is 'odd', but it must be model, none or causal"),
        ("original", {"part": "self"}, r"`part` is 'self', but .*original has encoder, decoder"),
        ("gpt2", {"leyer": 2}, r"attend has no parameter 'leyer': did you mean 'layer'"),
    ],
)
def test_rejects_invalid_options(model, kind, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        model(kind).attend(TEXT, **options)
