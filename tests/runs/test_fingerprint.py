"""Fingerprints of custom models: saved with the run, and never confused with another model."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from clearformer.builder import build, outline
from clearformer.config import DataConfig, Origin, RunConfig, TrainConfig
from clearformer.core import kernels
from clearformer.data import DataFolders
from clearformer.families import generator, preset
from clearformer.runs import finetune
from clearformer.runs.fingerprint import BUILDER, fingerprint
from clearformer.runs.load import open_run
from clearformer.runs.run import Run


@pytest.fixture
def config(tmp_path):
    source = tmp_path / "text.txt"
    source.write_text("some words to learn from, again and again\n" * 100)
    model = replace(generator(), length=16, layers=1, width=16, heads=2, hidden=32)
    train = TrainConfig(learning_rate=1e-2, batch_size=4, steps=6, evaluations=2, threads=1)
    return RunConfig(model=model, data=DataConfig(source=str(source)), train=train)


def trained(config, folder, **more):
    run = Run(config, folder, DataFolders(cache=folder.parent / "cache"), **more)
    list(run.events())
    return run


class Scaled(nn.Module):
    """The same weights under the same names, and another function."""

    def __init__(self, inner):
        super().__init__()
        for name, part in inner.named_children():
            self.add_module(name, part)
        self.inner = [inner]  # not a child: the names stay
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x, *rest, **more):
        if self.training:
            self.seen += 1
        return -self.inner[0](x, *rest, **more)


def own(config, seed):
    model = build(config, seed)
    block = model.stack.blocks[0]
    block.feed_forward = Scaled(block.feed_forward)
    return model


def scaled_kernel(factor):
    def kernel(q, *rest, **more):
        return kernels.fused(factor * q, *rest, **more)

    return kernel


def other_kernel(factor, config, seed):
    """The classes, names and shapes of the standard model, with another function."""
    model = build(config, seed)
    for block in model.stack.blocks:
        block.attention.kernel = scaled_kernel(factor)
    return model


@pytest.mark.parametrize(
    "name", ["modern-tiny", "xl-tiny", "bert-tiny", "sparse-small", "original-tiny"]
)
def test_built_model_has_fingerprint_of_outline(name):
    model = preset(name)
    assert fingerprint(build(model, 0)) == fingerprint(build(model, 1))
    assert fingerprint(build(model)) == fingerprint(outline(model))


def test_fingerprint_distinguishes_functions_and_settings(config):
    found = {
        fingerprint(make(config.model, 0))
        for make in (build, own, partial(other_kernel, 2.0), partial(other_kernel, 3.0))
    }
    assert len(found) == 4
    hooked = build(config.model)
    hooked.stack.register_forward_hook(lambda module, given, out: out * 2)
    assert fingerprint(hooked) not in found


@pytest.mark.parametrize("make", [own, partial(other_kernel, 2.0)])
def test_custom_model_opens_only_with_its_builder(config, tmp_path, make):
    run = trained(config, tmp_path / "run", make=make)
    with pytest.raises(ValueError, match=r"trained with a custom model builder.*make="):
        open_run(run.folder)
    with pytest.raises(
        ValueError, match="custom model builder, and this builder makes another model"
    ):
        open_run(run.folder, make=partial(other_kernel, 5.0))
    opened = open_run(run.folder, make=make)
    tokens = torch.tensor([[1, 2, 3, 4]])
    run.model.eval()
    with torch.inference_mode():
        assert opened.model(tokens).equal(run.model(tokens))


def test_custom_model_resumes_only_with_its_builder(config, tmp_path):
    folder = tmp_path / "run"
    trained(config, folder, make=own)
    longer = replace(config, train=replace(config.train, steps=8))
    with pytest.raises(
        ValueError, match="custom model builder, and this builder makes another model"
    ):
        trained(longer, folder, resume=True)
    run = trained(longer, folder, resume=True, make=own)
    assert run.state.step == 8
    buffers = [value for name, value in run.model.state_dict().items() if name.endswith("seen")]
    assert [float(each) for each in buffers] == [8.0], "what is no weight goes on too"
    seen = open_run(folder, make=own).model.stack.blocks[0].feed_forward.seen
    assert float(seen) == 8.0


def test_other_initialization_is_not_a_custom_model(config, tmp_path):
    run = trained(config, tmp_path / "run", make=lambda model, seed: build(model, seed + 1))
    opened = open_run(run.folder)
    assert BUILDER not in opened.checkpoint.manifest


def test_finetuning_from_custom_model_needs_its_builder(config, tmp_path):
    trained(config, tmp_path / "first", make=own)
    found = finetune.read_origin(tmp_path / "first")
    assert isinstance(found.origin, Origin)
    second = replace(config, origin=found.origin)
    with pytest.raises(ValueError, match="was trained with a custom model builder"):
        trained(second, tmp_path / "second")
    trained(second, tmp_path / "third", make=own)
