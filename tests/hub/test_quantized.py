"""Int8 runs: bitwise the same model, smaller, and for inference only."""

import pytest
import torch

from clearformer.builder import build
from clearformer.config import GenerationDefaults
from clearformer.hub import quantized
from clearformer.hub.exporting import to_safetensors
from clearformer.hub.importing import import_checkpoint
from clearformer.hub.quantized import to_int8
from clearformer.hub.write_run import write_run
from clearformer.inference.int8 import Int8Linear, quantize
from clearformer.runs import finetune
from clearformer.runs.checkpoint_average import average
from clearformer.runs.load import open_run
from clearformer.text import Bytes


@pytest.fixture
def run(small, scrambled, tmp_path):
    """A run with a scrambled model of a family."""

    def make(family="gpt2", **changes):
        config = small(family, vocabulary=256, **changes)
        model = scrambled(build(config))
        file = to_safetensors(
            model, config, GenerationDefaults(), Bytes(), tmp_path / f"{family}.safetensors"
        ).path
        return write_run(import_checkpoint(file), tmp_path / family)

    return make


@pytest.mark.parametrize("family", ["gpt2", "modern", "bert", "classifier"])
def test_int8_run_equals_quantized_model(run, tmp_path, family):
    path = run(family)
    expected = quantize(open_run(path).model)
    done = to_int8(path, tmp_path / "out")
    assert (done.form, done.difference) == ("int8", 0.0)
    assert "MiB became" in done.notes[0]
    opened = open_run(tmp_path / "out")
    assert any(isinstance(each, Int8Linear) for each in opened.model.modules())
    tokens = torch.randint(256, (2, 7))
    with torch.inference_mode():
        given, wanted = opened.model(tokens), expected(tokens)
    pairs = zip(*(x if isinstance(x, tuple) else (x,) for x in (given, wanted)), strict=True)
    assert all(one.equal(other) for one, other in pairs)


def test_tied_embedding_is_stored_once(run, tmp_path):
    to_int8(run("gpt2"), tmp_path / "out")
    files = (tmp_path / "out/checkpoints/step-0/int8.safetensors").stat().st_size
    floats = (tmp_path / "gpt2/checkpoints/step-0/model.safetensors").stat().st_size
    assert files < floats / 2  # norms and scales are much of a model as small as this


def test_int8_run_rejects_training_and_quantization(run, tmp_path):
    path = run("gpt2")
    to_int8(path, tmp_path / "out")
    start = finetune.read_origin(tmp_path / "out")  # an adapter may be trained from it
    for attempt in (
        lambda: to_int8(tmp_path / "out", tmp_path / "twice"),
        lambda: finetune.open_origin(start.origin, start.config),
        lambda: average(tmp_path / "out", 1, tmp_path / "mean"),
    ):
        with pytest.raises(ValueError, match="has int8 weights, which are for inference"):
            attempt()
    with pytest.raises(ValueError, match="already exists"):
        to_int8(path, tmp_path / "out")


def test_rejects_translator_and_leaves_no_files(run, tmp_path, monkeypatch):
    translator = run("original")
    with pytest.raises(
        ValueError, match="is a translator, but int8 supports models with one stack"
    ):
        to_int8(translator, tmp_path / "out")
    path = run("gpt2")
    monkeypatch.setattr(quantized, "difference", lambda *arguments: 1.0)
    with pytest.raises(ValueError, match="gives other logits"):
        to_int8(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
