"""Rejecting training steps that cannot fit in memory, and the out-of-memory message."""

from dataclasses import replace

import pytest

from clearformer.config import DataConfig, RunConfig, TrainConfig
from clearformer.families import gpt2, preset
from clearformer.families.recipes import recipe
from clearformer.plan import footprint
from clearformer.runs.memory_check import out_of_memory, require_memory
from clearformer.training import memory


def config(name="modern-tiny", **train):
    model = preset(name)
    data, usual = recipe(model)
    return RunConfig(model=model, data=data, train=replace(usual, device="cpu", **train))


def test_rejects_batch_larger_than_memory(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 16 * 10**9)
    absurd = config(batch_size=131_072)
    with pytest.raises(
        ValueError, match=r"131,072 sequences of .* tokens at a time take more than "
    ):
        require_memory(absurd, 131_072)
    require_memory(config(), 16)


def test_accepts_when_memory_is_unknown(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    require_memory(config(batch_size=131_072), 131_072)
    monkeypatch.setattr(memory, "available_bytes", lambda: 10**9)
    require_memory(config("classifier", batch_size=131_072), 131_072)  # as many rows as there are


@pytest.mark.parametrize("name", ["modern-tiny", "gpt2-small", "bert-tiny"])
@pytest.mark.parametrize("recompute", [None, "attention", 1])
def test_accepts_every_step_that_fits(monkeypatch, name, recompute):
    """The lower bound used here is always below the plan's count."""
    one = config(name, recompute=recompute)
    counted = footprint.footprint(one, one.train.batch_size, recompute, accumulated=False)
    monkeypatch.setattr(memory, "available_bytes", lambda: counted.total)
    require_memory(one, one.train.batch_size)


def sentence(fits=None, **train):
    return out_of_memory(
        RunConfig(
            model=gpt2(),
            data=DataConfig(source="x"),
            train=TrainConfig(learning_rate=1, steps=1, **train),
        ),
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 617558016 bytes.",
        fits,
    )


def test_out_of_memory_message_suggests_settings():
    assert sentence(batch_size=12, accumulation_steps=2).startswith(
        "out of memory (618 MB more were requested) with 6 sequences of 1024 tokens at a time, 12 "
        "layers of width 768: use --accumulation-steps 3 (the same gradient in 3 parts), or "
        "--recompute 1 "
    )
    assert "a shorter --length than 1024" in sentence(batch_size=1)
    assert "--recompute" not in sentence(batch_size=1, recompute=1)
    assert "clearformer plan" in sentence(batch_size=1)


def test_out_of_memory_message_names_tried_sizes():
    assert "--accumulation-steps 6 (the same gradient; 2 at a time fit)" in sentence(
        6, batch_size=12
    )
    assert "(not even one sequence fits)" in sentence(0, batch_size=12)
