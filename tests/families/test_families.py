"""Every family builds, trains, saves, loads, compiles and runs in every precision."""

import re
import shutil

import pytest
import torch
from safetensors.torch import load_model, save_model

from clearformer.builder import build
from clearformer.config import AdamW, Muon, Seq2SeqConfig
from clearformer.families import FAMILIES, preset, presets
from clearformer.families.recipes import going_on, recipe

DTYPES = [torch.bfloat16, torch.float32, torch.float64]


def test_family_and_preset_names():
    assert list(FAMILIES) == [
        "classifier",
        "generator",
        "original",
        "bert",
        "gpt2",
        "xl",
        "sparse",
        "modern",
    ]
    assert {"gpt2-xl", "bert-base", "xl-enwik8-12", "original-big"} <= set(presets())
    for name in presets():
        assert preset(name).name == name
        assert isinstance(preset(name), Seq2SeqConfig) == name.startswith("original")


@pytest.mark.parametrize("family", FAMILIES)
def test_family_name_selects_first_size(family):
    _, sizes = FAMILIES[family]
    assert preset(family).name == f"{family}-{next(iter(sizes))}"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gtp2-small", "there is no model 'gtp2-small': did you mean 'gpt2-small'?"),
        ("gpt2-smal", "there is no model 'gpt2-smal': did you mean 'gpt2-small'?"),
        ("bert-huge-42", "there is no model 'bert-huge-42': did you mean 'bert-"),
        ("modern-!", "there is no model 'modern-!': did you mean 'modern-"),
        ("?", "there is no model '?': known: classifier, generator, original, bert, gpt2, "),
        ("gpt2-0123456789", "there is no model 'gpt2-0123456789': known: gpt2-small, gpt2-medium"),
    ],
)
def test_rejects_unknown_name_with_suggestion(name, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        preset(name)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_forward_and_backward_in_every_precision(
    family, dtype, small, scrambled, example, logits, gradients
):
    config = small(family)
    batch = example(config)
    model = scrambled(build(config))
    exact = [values.detach() for values in logits(model, batch)]
    model = model.to(dtype)
    for values, expected in zip(logits(model, batch), exact, strict=True):
        assert values.dtype == dtype
        near = 0.15 if dtype == torch.bfloat16 else 1e-4
        torch.testing.assert_close(values.float(), expected, atol=near, rtol=near)
    for name, gradient in gradients(model, batch).items():
        assert gradient.isfinite().all(), name
        assert gradient.any(), f"{name} takes no part"


@pytest.mark.parametrize("family", FAMILIES)
def test_overfits_one_batch(family, small, example):
    """With the initial weights, a few steps lower the loss of one batch by a lot."""
    config = small(family)
    batch = example(config)
    model = build(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        totals, counts = model.loss(batch)
        loss = (totals / counts).sum()
        loss.backward()
        optimizer.step()
        return loss.item()

    losses = [step() for _ in range(40)]
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("family", FAMILIES)
def test_save_and_load_is_bitwise_exact(family, small, scrambled, example, logits, tmp_path):
    config = small(family)
    saved, loaded = scrambled(build(config)), build(config, seed=1)
    save_model(saved, str(tmp_path / "model.safetensors"))
    load_model(loaded, str(tmp_path / "model.safetensors"))
    batch = example(config)
    assert all(map(torch.equal, logits(saved, batch), logits(loaded, batch)))
    # The names under which one weight goes are the same as before.
    assert shared_names(loaded) == shared_names(saved)
    assert len(list(loaded.parameters())) == len(list(saved.parameters()))


def shared_names(model):
    places = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        places.setdefault(id(parameter), []).append(name)
    return sorted(places.values())


# With inductor for all eight this alone takes 80 seconds on two cores. One post-norm and one
# pre-norm family go all the way to machine code (and a block does, in core/test_block.py); the
# others stop before it: captured in one graph, with the backward pass, and run as that.
BACKENDS = dict.fromkeys(FAMILIES, "aot_eager") | {"classifier": "inductor", "gpt2": "inductor"}


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
@pytest.mark.parametrize("family", FAMILIES)
def test_compiles_without_graph_breaks_and_matches_eager(family, small, scrambled, example, logits):
    torch.compiler.reset()
    config = small(family, layers=1, **({"decoder_layers": 1} if family == "original" else {}))
    batch = example(config)
    model = scrambled(build(config))

    def values_and_gradients():
        values = logits(model, batch)
        mixed = sum(each.square().sum() for each in values)
        return [*values, *torch.autograd.grad(mixed, list(model.parameters()))]

    expected = values_and_gradients()
    # The tiles of a sparse pattern are found by plain Python, between two graphs.
    model.compile(fullgraph=config.kernel == "fused", backend=BACKENDS[family])
    torch.testing.assert_close(values_and_gradients(), expected, atol=1e-4, rtol=1e-4)


def test_recipes_match_model_kind():
    for name in presets():
        data, train = recipe(preset(name))
        masked = name.startswith("bert")
        assert (data.masking is not None) == masked
        assert name.startswith("original") or train.minutes == 2
        if masked:
            assert data.tokenizer == "wordpiece"
    assert recipe(preset("gpt2-xl"))[0].tokenizer == "bpe"
    assert recipe(preset("bert-mini"))[0].vocabulary == 8192
    # Measured: docs/log.md.
    assert isinstance(recipe(preset("xl-tiny"))[1].optimizer, Muon)
    data, train = recipe(preset("bert-tiny-masked"))
    assert (data.masking.rate, train.optimizer, train.batch_size) == (0.4, AdamW(), 8)
    assert recipe(preset("bert-tiny"))[0].masking.rate == 0.15  # as published


def test_finetuning_recipe_keeps_tokenizer_and_lowers_learning_rate():
    for name in ("bert-mini", "gpt2-small", "classifier-imdb"):
        model = preset(name)
        data, train = going_on(model, "wordpiece", 1234)
        assert (data.tokenizer, data.vocabulary) == ("wordpiece", 1234)
        assert train.learning_rate < recipe(model)[1].learning_rate
        assert train.epochs == (3 if name.startswith("class") else 1)
