"""Saving and restoring training state: bitwise resume."""

from dataclasses import replace

import pytest
import torch

from clearformer.builder import build, outline
from clearformer.config import AdamW, DataConfig, Muon, RunConfig
from clearformer.core.model import Batch
from clearformer.families import gpt2
from clearformer.runs.checkpoint import newest
from clearformer.runs.state import (
    State,
    adopt_weights,
    load_weights,
    restore,
    save,
    tied,
    weights,
)
from clearformer.training.ema import EMA
from clearformer.training.optim import make_optimizers
from clearformer.training.step import train_step

TIED = replace(
    gpt2(), vocabulary=20, length=12, layers=2, width=16, heads=2, hidden=32
)  # with dropout and a tied head


def fresh(config):
    torch.manual_seed(config.train.seed)
    model = build(config.model, config.train.seed)
    average = EMA(model, config.train.ema_decay) if config.train.ema_decay else None
    return State(model, make_optimizers(model, config.train), average)


def advance(state, steps):
    losses = []
    for _ in range(steps):
        draw = torch.Generator().manual_seed(state.step)
        tokens = torch.randint(20, (4, 12), generator=draw)
        outcome = train_step(
            state.model.loss,
            state.model.parameters(),
            state.optimizers,
            [Batch(tokens, tokens.roll(-1, 1))],
            torch.tensor([48]),
            1.0,
        )
        losses.append(outcome.loss)
        if state.ema:
            state.ema.update(state.model, state.step)
        state.step += 1
    return losses


@pytest.mark.parametrize("optimizer", [AdamW(), Muon()])
@pytest.mark.parametrize("ema", [None, 0.9])
def test_resume_is_bitwise(tmp_path, train_config, optimizer, ema):
    config = RunConfig(
        model=TIED,
        data=DataConfig(source="x"),
        train=replace(train_config, optimizer=optimizer, ema_decay=ema),
    )
    whole = fresh(config)
    expected = advance(whole, 20)
    first = fresh(config)
    losses = advance(first, 10)
    save(tmp_path, first, config, {"kind": "bytes"}, {})
    torch.rand(17)  # whatever happens in between
    second = fresh(config)
    restore(newest(tmp_path, print), second)
    assert second.step == 10
    losses += advance(second, 10)
    assert losses == expected
    for name, value in weights(second.model).items():
        assert value.equal(weights(whole.model)[name]), name
    if ema:
        for name, value in second.ema.weights.items():
            assert value.equal(whole.ema.weights[name]), name


def test_tied_weight_is_stored_once_and_stays_tied(tmp_path, train_config):
    config = RunConfig(model=TIED, data=DataConfig(source="x"), train=train_config)
    state = fresh(config)
    found = save(tmp_path, state, config, {}, {})
    assert found.manifest["tied"] == {"head.project.weight": "embedding.token.weight"}
    assert "head.project.weight" not in found.tensors("model.safetensors")
    other = fresh(config)
    restore(found, other)
    assert other.model.head.project.weight is other.model.embedding.token.weight
    assert tied(other.model) == found.manifest["tied"]


def test_rejects_weights_that_do_not_fit(train_config):
    model = build(TIED)
    found = weights(model)
    with pytest.raises(ValueError, match=r"missing stack\.norm\.bias; not in the model: nothing"):
        load_weights(
            dict(model.named_parameters()),
            {k: v for k, v in found.items() if k != "stack.norm.bias"},
            "here",
        )
    with pytest.raises(ValueError, match=r"stack.norm.bias has shape \(3,\), but the model has"):
        load_weights(
            dict(model.named_parameters()), found | {"stack.norm.bias": torch.zeros(3)}, "here"
        )


def test_adopt_weights_shares_memory(train_config):
    config = replace(
        gpt2("small"), vocabulary=20, length=12, layers=1, width=16, heads=2, hidden=32
    )
    given = weights(build(config, seed=3))
    model = outline(config)
    adopt_weights(model, given, "here")
    for name, parameter in model.named_parameters():
        assert parameter.data_ptr() == given[name].data_ptr(), name
    assert model.head.project.weight is model.embedding.token.weight
    assert tied(model) == tied(build(config))
    tokens = torch.arange(5)[None]
    assert model.eval()(tokens).equal(build(config, seed=3).eval()(tokens))
    del given["stack.norm.bias"]
    with pytest.raises(ValueError, match=r"here does not fit the model: missing stack.norm.bias"):
        adopt_weights(outline(config), given, "here")
