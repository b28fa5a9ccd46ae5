"""Memory footprint: the estimate equals the memory of a real step."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from clearformer.config import DataConfig, Dropout, LoRA, Masking, Muon, RunConfig, TrainConfig
from clearformer.core.heads import IGNORE
from clearformer.families import FAMILIES
from clearformer.plan.footprint import ASSUMED_LENGTHS, footprint
from clearformer.tasks.registry import task_of

TRAIN = TrainConfig(learning_rate=1e-3, batch_size=4, steps=1, precision="float32")


@pytest.fixture
def run(small):
    def config(family, train=TRAIN, **changes):
        model = small(family, **changes)
        masking = Masking(rate=0.25) if family == "bert" else None
        return RunConfig(model=model, data=DataConfig(source="x", masking=masking), train=train)

    return config


@pytest.mark.parametrize("what", [None, 1])
@pytest.mark.parametrize("family", FAMILIES)
def test_fake_tensors_match_real_tensors(run, family, what, monkeypatch):
    """The same code on real tensors, whose sizes are added up: the same bytes."""
    config = run(family, dropout=Dropout(residual=0.1))
    imagined = footprint(config, 3, what, accumulated=False)
    monkeypatch.setattr(
        "torch._subclasses.fake_tensor.FakeTensorMode", lambda **options: nullcontext()
    )
    real = footprint(config, 3, what, accumulated=False)
    assert imagined.operations == real.operations
    for part in ("weights", "gradients", "optimizer"):
        assert getattr(imagined, part) == getattr(real, part)
    # Tiles of a sparse pattern are real in both, and found once.
    assert imagined.kept == pytest.approx(real.kept, rel=0.06)
    assert imagined.step == pytest.approx(real.step, rel=0.06)


@pytest.mark.parametrize("what", [None, 1, 2, "attention"])
def test_sparse_layers_are_extrapolated(run, what, monkeypatch):
    config = run("sparse", layers=14)
    found = footprint(config, 3, what, accumulated=True)
    monkeypatch.setattr("clearformer.plan.footprint.lcm", lambda *turns: 10)  # too few turns
    whole = footprint(config, 3, what, accumulated=True)
    for part in ("parameters", "weights", "gradients", "optimizer", "operations"):
        assert getattr(found, part) == getattr(whole, part)
    for part in ("kept", "step", "evaluation"):
        assert getattr(found, part) == pytest.approx(getattr(whole, part), rel=0.01)


def test_footprint_of_known_model(run):
    config = run("gpt2")
    found = footprint(config, 2, None, accumulated=False)
    assert found.weights == found.gradients == 4 * found.parameters
    steps = 4 * len([1 for _ in range(28)])  # a counter for each of the 28 tensors
    assert found.optimizer == 2 * found.weights + steps
    assert found.total == found.weights + found.optimizer + max(found.step, found.evaluation)


def test_operations_match_formula(run):
    """6 for each weight of a matrix and token, and the attention."""
    config = run("gpt2")
    model, rows = config.model, 2
    matrices = model.layers * (4 * model.width**2 + 2 * model.width * model.hidden)
    matrices += model.width * model.vocabulary
    tokens = rows * model.length
    attention = 4 * rows * model.length**2 * model.width * model.layers
    expected = 6 * matrices * tokens + 3.5 * attention
    assert footprint(config, rows, None, accumulated=False).operations == expected
    again = footprint(config, rows, 1, accumulated=False).operations
    # All of a block but its last product, whose result the backward pass does not need.
    last = 2 * model.layers * model.width * model.hidden * tokens
    blocks = 2 * (matrices - model.width * model.vocabulary) * tokens + attention
    assert again == expected + blocks - last


def test_recomputation_and_accumulation_change_footprint(run):
    config = run("gpt2", layers=12)
    plain, less = (footprint(config, 4, what, accumulated=False) for what in (None, 1))
    assert less.kept < 0.3 * plain.kept
    assert less.total < plain.total
    cut = footprint(config, 4, 1, accumulated=True)
    assert cut.step >= less.step


def test_ema_and_optimizer_change_footprint(run):
    plain = footprint(run("modern"), 2, None, accumulated=False)
    muon = footprint(
        run("modern", replace(TRAIN, optimizer=Muon(), ema_decay=0.9)), 2, None, accumulated=False
    )
    assert muon.optimizer < plain.optimizer
    assert (plain.average, muon.average) == (0, muon.weights)


def test_pair_rows_follow_token_budget(run):
    config = run("original", replace(TRAIN, batch_size=20, batch_tokens=64))
    config = replace(config, model=replace(config.model, length=40))
    task = task_of(config.model)
    several = ((32, 32), (3, 8), (1, 2), (90, 9))
    assert [task.rows(config, pair_lengths) for pair_lengths in several] == [2, 8, 20, 1]
    batch, _ = task.example(config, 8, (3, 8))
    assert (batch.source.shape, batch.target.shape) == ((8, 3), (8, 8))
    gpt2 = run("gpt2")
    assert task_of(gpt2.model).rows(gpt2, ASSUMED_LENGTHS) == 4


def test_longer_pairs_need_more_memory(run):
    config = run("original")
    short, long = (
        footprint(config, 4, None, False, pair_lengths) for pair_lengths in ((4, 4), (4, 8))
    )
    assert short.kept < long.kept
    assert short.operations < long.operations


def test_masked_example_targets_only_masked_tokens(run):
    """A loss over every position would take several times as long."""
    config = run("bert")
    batch, _ = task_of(config.model).example(config, 4, ASSUMED_LENGTHS)
    hidden, _ = batch.targets
    assert (hidden != IGNORE).float().mean() == config.data.masking.rate


@pytest.mark.parametrize("share", [0.15, 0.4, 0.85])
def test_masked_example_follows_rate(run, share):
    config = run("bert")
    config = replace(config, data=replace(config.data, masking=Masking(rate=share)))
    batch, _ = task_of(config.model).example(config, 64, ASSUMED_LENGTHS)
    hidden, _ = batch.targets
    assert (hidden != IGNORE).float().mean().item() == pytest.approx(share, abs=0.01)


def test_an_adapter_needs_less_memory(run):
    plain = footprint(run("modern"), 2, None, accumulated=False)
    adapter = LoRA(rank=2, base="int8")
    small = footprint(run("modern", replace(TRAIN, adapter=adapter)), 2, None, accumulated=False)
    assert small.weights < plain.weights
    assert small.gradients < plain.gradients / 2
    assert small.optimizer < plain.optimizer / 2
