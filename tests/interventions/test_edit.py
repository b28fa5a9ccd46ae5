"""Edits: equal to the same change in plain torch, for every family; the model stays as it was."""

import pytest
import torch

from clearformer.builder import build
from clearformer.explore.trace import trace
from clearformer.families import FAMILIES
from clearformer.interventions import (
    attention,
    edit,
    head,
    mlp,
    neuron,
    norm,
    point,
    residual,
)
from clearformer.interventions.instrument import attentions
from clearformer.interventions.points import AXES, READ_ONLY
from clearformer.model import Model

TOKENS = torch.tensor([5, 17, 3, 9, 17, 3, 11])
ENDS = torch.tensor([1.0, 0, 0, 0, 0, 0, 1])


def changed(stage, layer, function):
    """The change of one stage in one layer, for the plain forward pass."""

    def change(each, number, x):
        return function(x.clone()) if (each, number) == (stage, layer) else x

    return change


def put(index, value):
    def function(x):
        x[index] = value
        return x

    return function


CASES = {
    "zero a head": (
        {"zero": head(1, 2)},
        changed("head_out", 1, put(2, 0.0)),
    ),
    "zero several": (
        {"zero": [head(1, 2), head(1, 0)]},
        changed("head_out", 1, put([0, 2], 0.0)),
    ),
    "zero a head at a position": (
        {"zero": head(1, 2).at(3)},
        changed("head_out", 1, put((2, 3), 0.0)),
    ),
    "scale": ({"scale": {mlp(0): 0.5}}, changed("mlp_out", 0, lambda x: 0.5 * x)),
    "neuron": ({"zero": neuron(2, 7)}, changed("mlp_hidden", 2, put((slice(None), 7), 0.0))),
    "steer": (
        {"steer": {residual(1): torch.arange(32.0)}},
        changed("resid_pre", 1, lambda x: x + torch.arange(32.0)),
    ),
    "steer at positions": (
        {"steer": {residual(1, "mid").at(0, -1): torch.arange(32.0)}},
        changed("resid_mid", 1, lambda x: x + ENDS[:, None] * torch.arange(32.0)),
    ),
    "set a weight": (
        {"weights": {attention(0, 1)[4, 2]: 0.9}, "renormalize": False},
        changed("weights", 0, put((1, 4, 2), 0.9)),
    ),
    "a tensor": (
        {"replace": {point("attn_out", 2).at(-1): torch.ones(32)}},
        changed("attn_out", 2, put(-1, 1.0)),
    ),
    "an input": ({"zero": point("attn_in", 1).at(2)}, changed("attn_in", 1, put(2, 0.0))),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_plain_torch(gpt2, plain, name):
    changes, change = CASES[name]
    unedited = gpt2(TOKENS[None])[0]
    torch.testing.assert_close(plain(gpt2, TOKENS), unedited, atol=1e-4, rtol=1e-4)
    with edit(gpt2, **changes):
        edited = gpt2(TOKENS[None])[0]
    torch.testing.assert_close(edited, plain(gpt2, TOKENS, change), atol=1e-4, rtol=1e-4)
    assert (edited - unedited).abs().max() > 1e-3


def test_replace_from_another_text(gpt2, plain):
    other = torch.tensor([8, 17, 3, 2, 17, 3, 11])
    seen = {}

    def keep(stage, layer, x):
        seen[stage, layer] = x
        return x

    plain(gpt2, other, keep)
    patched = changed("resid_pre", 2, put(-1, seen["resid_pre", 2][-1]))
    with edit(gpt2, replace={residual(2).at(-1): trace(gpt2, other)}):
        edited = gpt2(TOKENS[None])[0]
    torch.testing.assert_close(edited, plain(gpt2, TOKENS, patched), atol=1e-4, rtol=1e-4)


def test_replacing_the_whole_stream_gives_the_other_text(gpt2):
    other = torch.tensor([8, 1, 3, 2, 4, 3, 12])
    with edit(gpt2, replace={residual(1): trace(gpt2, other)}):
        torch.testing.assert_close(gpt2(TOKENS[None]), gpt2(other[None]), atol=1e-4, rtol=1e-4)


def test_mean_ablation(gpt2, plain):
    texts = [TOKENS, torch.tensor([1, 2, 3])]
    seen = []

    def keep(stage, layer, x):
        if (stage, layer) == ("head_out", 1):
            seen.append(x[3])
        return x

    for text in texts:
        plain(gpt2, text, keep)
    change = changed("head_out", 1, put(3, torch.cat(seen).mean(0)))
    with edit(gpt2, mean={head(1, 3): [trace(gpt2, text) for text in texts]}):
        edited = gpt2(TOKENS[None])[0]
    torch.testing.assert_close(edited, plain(gpt2, TOKENS, change), atol=1e-4, rtol=1e-4)


def test_frozen_attention_and_norms_make_the_rest_linear(gpt2):
    """With attention patterns and norms held, logits of attention-only paths are linear."""
    reference = trace(gpt2, TOKENS)
    frozen = {attention(): reference, norm(): reference}
    vector = torch.randn(32)

    def logits(strength):
        steered = {residual(2, "post"): strength * vector}
        with edit(gpt2, freeze=frozen, steer=steered), torch.no_grad():
            return gpt2(TOKENS[None])[0]

    unedited = gpt2(TOKENS[None])[0]
    torch.testing.assert_close(logits(0.0), unedited, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(
        logits(2.0) - unedited, 2 * (logits(1.0) - unedited), atol=1e-3, rtol=1e-3
    )
    with edit(gpt2, steer={residual(2, "post"): 2 * vector}):
        assert (gpt2(TOKENS[None])[0] - logits(2.0)).abs().max() > 1e-2


def test_weights_of_a_row_are_renormalized(gpt2):
    before = trace(gpt2, TOKENS).weights(1, 2)
    with edit(gpt2) as change:
        change.attention(1, 2)[4, 1] = 0.5
        change.attention(1, 2)[4, 2] = 0.25
        after = trace(gpt2, TOKENS).weights(1, 2)
    assert after[4, 1] == 0.5
    assert after[4, 2] == 0.25
    others = [0, 3, 4]
    torch.testing.assert_close(after[4].sum(), torch.tensor(1.0))
    torch.testing.assert_close(
        after[4, others] / after[4, others].sum(), before[4, others] / before[4, others].sum()
    )
    torch.testing.assert_close(after[3], before[3])


def test_a_trace_inside_an_edit_shows_the_edit(gpt2):
    with edit(gpt2, zero=head(1, 2)):
        seen = trace(gpt2, TOKENS)
    assert seen.get("head_out", 1, 2).abs().max() == 0
    assert seen.get("head_out", 1, 1).abs().max() > 0


def test_edits_nest_and_the_outer_acts_first(gpt2):
    ones = torch.ones(32)
    with edit(gpt2, steer={residual(1): ones}), edit(gpt2, scale={residual(1): 0.0}):
        assert trace(gpt2, TOKENS).get("resid_pre", 1).abs().max() == 0
    with edit(gpt2, scale={residual(1): 0.0}), edit(gpt2, steer={residual(1): ones}):
        assert (trace(gpt2, TOKENS).get("resid_pre", 1) == 1).all()


def test_gradients_flow(gpt2):
    vector = torch.zeros(32, requires_grad=True)
    factor = torch.ones((), requires_grad=True)
    with edit(gpt2, steer={residual(1): vector}, scale={head(2, 0): factor}):
        loss = gpt2(TOKENS[None])[0, -1, 4]
    loss.backward()
    step = 1e-2
    slope = []
    for sign in (1, -1):
        with edit(gpt2, scale={head(2, 0): 1 + sign * step}), torch.no_grad():
            slope.append(float(gpt2(TOKENS[None])[0, -1, 4]))
    assert float(factor.grad) == pytest.approx((slope[0] - slope[1]) / (2 * step), rel=0.02)
    assert vector.grad.abs().max() > 0


@pytest.mark.parametrize("family", list(FAMILIES))
def test_every_family_is_left_as_it_was(family, small, scrambled, example, logits, fingerprint):
    config = small(family)
    model = scrambled(build(config)).eval()
    batch = example(config)
    before, expected = fingerprint(model), logits(model, batch)
    with edit(model):
        unedited = logits(model, batch)
    for got, wanted in zip(unedited, expected, strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-5)
    for part in dict.fromkeys(part for part, _ in attentions(model)):
        with edit(model, zero=head(0, 1, part), scale={point("attn_out", 1, part=part): 0.3}):
            assert fingerprint(model) != before
            edited = logits(model, batch)
        assert any((a - b).abs().max() > 1e-4 for a, b in zip(edited, expected, strict=True)), part
    assert fingerprint(model) == before
    for got, wanted in zip(logits(model, batch), expected, strict=True):
        assert torch.equal(got, wanted)


def test_left_as_it_was_after_an_error(gpt2, fingerprint):
    before = fingerprint(gpt2)
    with pytest.raises(ValueError, match="position is 40"), edit(gpt2, zero=residual(0).at(40)):
        gpt2(TOKENS[None])
    assert fingerprint(gpt2) == before
    with pytest.raises(KeyError), edit(gpt2, zero=mlp(0)), edit(gpt2, zero=mlp(1)):
        raise KeyError
    assert fingerprint(gpt2) == before


@pytest.mark.parametrize("family", ["gpt2", "modern", "sparse", "generator"])
def test_generating_inside_an_edit_equals_whole_passes(family, writer):
    language_model = writer(family)
    module = language_model.module
    model = Model(module, language_model.config, None)
    prompt = [3, 8, 2, 9]
    vector = torch.randn(language_model.config.width) * 3
    with model.edit(zero=head(0, 1), steer={residual(1).at(2, 5): vector}):
        written = model.generate(prompt, max_tokens=5, temperature=0)
    text = list(prompt)
    for _ in range(5):
        read = [position for position in (2, 5) if position < len(text)]
        with model.edit(zero=head(0, 1), steer={residual(1).at(*read): vector}), torch.no_grad():
            text.append(int(module(torch.tensor([text]))[0, -1].argmax()))
    assert written == text[len(prompt) :]
    assert written != model.generate(prompt, max_tokens=5, temperature=0)


def test_generating_with_a_memory_inside_an_edit(writer):
    language_model = writer("xl")
    model = Model(language_model.module, language_model.config, None)
    silent = [point("attn_out"), mlp()]
    with model.edit(zero=silent):
        written = model.generate([3, 8, 2, 9], max_tokens=4, temperature=0)
    with model.edit(zero=silent), torch.no_grad():
        # Without its sublayers a model sees only the last token.
        alone = [int(model.module(torch.tensor([[9]]))[0, -1].argmax())]
        for _ in range(3):
            alone.append(int(model.module(torch.tensor([alone[-1:]]))[0, -1].argmax()))
    assert written == alone


def test_translating_inside_an_edit(trained_translator):
    import clearformer as cf

    model = cf.load(trained_translator)
    before = model.translate("2 3")
    with model.edit(zero=[point("attn_out", part="cross"), point("attn_out", part="decoder")]):
        inside = model.translate("2 3"), model.translate("7 8 9")
    assert inside[0] == inside[1]  # nothing of the source is seen
    assert model.translate("2 3") == before


MESSAGES = {
    "layer": (lambda m: edit(m, zero=head(9, 0)), "layer is 9, but the model has layers 0 to 2"),
    "head": (lambda m: edit(m, zero=head(0, 4)), "head is 4, but the layer has heads 0 to 3"),
    "part": (
        lambda m: edit(m, zero=head(0, 0, "cross")),
        "there is no part 'cross' in this model: there is self",
    ),
    "stage": (lambda m: point("atn_out", 0), "there is no stage 'atn_out'.*mean 'attn_out'"),
    "no heads": (lambda m: point("attn_out", 0, 1), "attn_out has no heads: leave head out"),
    "keyword": (lambda m: edit(m, zeros=head(0, 0)), "edit has no parameter 'zeros'.*zero"),
    "no point": (lambda m: edit(m, zero="head 2"), "'head 2' is not a point: write head"),
    "no trace": (
        lambda m: edit(m, replace={mlp(0): "text"}),
        "replace has a str, but it must be a trace: pass model.trace",
    ),
    "read only": (lambda m: edit(m, zero=point("k_proj", 0)), "can only be read: change 'k'"),
    "freeze": (lambda m: edit(m, freeze={mlp(0): None}), "mlp_out layer 0 cannot be frozen"),
    "no mean": (
        lambda m: edit(m, mean={attention(0): trace(m, TOKENS)}),
        "weights layer 0 has no mean",
    ),
    "no vector": (lambda m: edit(m, steer={mlp(0): 3.0}), "steer has a float"),
    "weight": (
        lambda m: edit(m, weights={attention(0, 0)[1, 0]: 1.5}),
        "the weight is 1.5, but it must be from 0 to 1: pass renormalize=False",
    ),
    "no cell": (lambda m: edit(m, weights={attention(0, 0): 0.5}), "is not a weight: write"),
    "no model": (lambda m: edit(torch.nn.Linear(2, 2)), "Linear is not a model of clearformer"),
    "no bias": (
        lambda m: edit(m, zero=point("bias", 1)),
        "there is no bias in self in layer 1 of this model: look at what model.trace",
    ),
    "final norm": (
        lambda m: edit(m, scale={norm(0, "final"): 2.0}),
        "there is no final_norm_scale in self in layer 0 of this model",
    ),
    "zero norm": (
        lambda m: edit(m, zero=norm(1)),
        "layer 1 cannot be zero, since the norm divides by it: scale it",
    ),
    "no dict": (
        lambda m: edit(m, scale=head(0, 0)),
        r"scale is a Point, but it must be a dict from points.*: write scale=\{head\(2, 3\): 0.5",
    ),
    "factor": (
        lambda m: edit(m, scale={mlp(0): "2"}),
        "`scale` is '2', but it must be a finite number",
    ),
    "weight nan": (
        lambda m: edit(m, weights={attention(0, 0)[1, 0]: float("nan")}, renormalize=False),
        "`weight` is nan, but it must be a finite number",
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages(gpt2, name):
    call, sentence = MESSAGES[name]
    with pytest.raises(ValueError, match=sentence) as caught:
        call(gpt2)
    assert "\n" not in str(caught.value)


PASSES = {
    "shape": ({"steer": {residual(0): torch.ones(3)}}, r"the value has shape \(3,\)"),
    "row": (
        {"weights": {attention(0, 0)[4, 1]: 0.9, attention(0, 0)[4, 2]: 0.8}},
        "sum to 1.7, but a row sums to 1",
    ),
    "key": ({"weights": {attention(0, 0)[4, 30]: 0.9}}, "key is 30, but there are keys 0 to 6"),
    "factor": ({"scale": {mlp(0): torch.ones(3)}}, r"the value has shape \(3,\)"),
    "unit": ({"zero": neuron(0, 99)}, "unit is 99, but the layer has units 0 to 47"),
}


@pytest.mark.parametrize("name", PASSES)
def test_messages_of_a_pass(gpt2, name):
    changes, sentence = PASSES[name]
    with pytest.raises(ValueError, match=sentence), edit(gpt2, **changes):
        gpt2(TOKENS[None])


@pytest.mark.parametrize("family", ["gpt2", "generator", "xl"])
def test_every_stage_is_recorded_or_refused(family, small, scrambled):
    """An edit of a stage that the model does not compute would change nothing, silently."""
    model = scrambled(build(small(family))).eval()
    recorded = trace(model, TOKENS % 13).recorded["self", 1]
    for stage in AXES:
        if stage in recorded and stage not in READ_ONLY:
            edit(model, scale={point(stage, 1): 2.0})
        elif stage not in recorded:
            with pytest.raises(ValueError, match=f"there is no {stage} in self in layer 1"):
                edit(model, scale={point(stage, 1): 2.0})


def test_a_trace_of_another_length_is_refused(gpt2):
    other = trace(gpt2, TOKENS[:4])
    with (
        pytest.raises(ValueError, match=r"at 6: in the trace, position is 6, but there are posit"),
        edit(gpt2, replace={residual(1).at(6): other}),
    ):
        gpt2(TOKENS[None])
    with (
        pytest.raises(ValueError, match="trace a text of as many tokens, or choose positions"),
        edit(gpt2, replace={residual(1): other}),
    ):
        gpt2(TOKENS[None])
