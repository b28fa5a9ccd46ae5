"""Planning: the plan fits, is the fastest that does, or explains why there is none."""

from dataclasses import replace

import pytest

from clearformer.config import DataConfig, Masking, RunConfig, TrainConfig
from clearformer.plan import planner
from clearformer.plan.footprint import ASSUMED_LENGTHS


@pytest.fixture
def config(small):
    return RunConfig(
        model=small("gpt2", layers=8, width=64, hidden=256, length=512, vocabulary=50),
        data=DataConfig(source="x"),
        train=TrainConfig(learning_rate=1e-3, batch_size=8, steps=1, precision="float32"),
    )


@pytest.fixture(autouse=True)
def known_base(monkeypatch):
    monkeypatch.setattr(planner, "base_bytes", lambda: 100 * 10**6)


def test_micro_batch_counts_divide_batch(config):
    for batch, accumulate in ((12, 1), (12, 2), (16, 4), (7, 1), (1, 1)):
        train = replace(config.train, batch_size=batch, accumulation_steps=accumulate)
        wanted = [n for n in range(accumulate, batch + 1) if batch % n == 0]
        assert (
            planner._micro_batch_counts(replace(config, train=train), ASSUMED_LENGTHS, last=True)
            == wanted
        )


def test_config_that_fits_is_unchanged(config):
    found = planner.plan(config, 10**12)
    assert found.config == config
    assert planner.plan(config).total == found.total


def test_accumulates_before_recomputing(config):
    whole = planner.plan(config)
    settings = {}
    for share in (0.7, 0.45, 0.25):
        limit = whole.base + round(share * (whole.total - whole.base))
        found = planner.plan(config, limit)
        assert planner.SAFETY_FACTOR * found.total <= limit
        settings[share] = found.config.train.accumulation_steps, found.config.train.recompute
    assert settings[0.7] == (2, None)  # no more work than needed
    assert settings[0.45][1] is None
    # A micro-batch of 1,024 tokens is 2 sequences: smaller ones would be slow.
    assert settings[0.25][1] is not None


def test_rejects_impossible_limit_with_advice(config):
    with pytest.raises(ValueError, match="gpt2-small does not fit into 101 MB") as problem:
        planner.plan(config, 101 * 10**6)
    sentence = str(problem.value)
    assert "Python and torch 100 MB" in sentence
    assert "It would with --memory 0.2GB or more" in sentence
    limit = 120 * 10**6
    with pytest.raises(ValueError, match=r"--model.layers [1-7];") as problem:
        planner.plan(config, limit)
    layers = int(str(problem.value).split("--model.layers ")[1].split(";")[0])
    fewer = replace(config, model=replace(config.model, layers=layers))
    assert planner.plan(fewer, limit).safe <= limit


def test_limit_below_python_itself_advises_only_memory(config):
    for limit in (10_000, 100 * 10**6):
        with pytest.raises(ValueError, match="gpt2-small does not fit into ") as problem:
            planner.plan(config, limit, "--fit")
        end = (
            "Python and torch alone take 100 MB, whatever the model. It would with --fit 0.2GB or "
        )
        assert str(problem.value).endswith(f": {end}more")


def test_variable_lengths_add_kernel_memory_in_half_precision(config, small):
    """oneDNN writes one for each size of each product."""
    half = replace(config, train=replace(config.train, precision="bfloat16"))
    assert planner.plan(half).base == planner.plan(config).base
    texts = replace(half, model=small("classifier"))
    assert planner.plan(texts).base == planner.plan(config).base + planner.HALF_KERNEL_BYTES
    hiding = replace(half, data=replace(half.data, masking=Masking()))
    assert planner.plan(hiding).base == planner.plan(config).base + planner.HALF_KERNEL_BYTES
    whole = replace(texts, train=replace(texts.train, precision="float32"))
    assert planner.plan(whole).base == planner.plan(config).base
