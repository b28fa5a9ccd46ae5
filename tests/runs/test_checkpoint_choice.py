"""Which checkpoint is opened: the last, unless validation shows that it is worse."""

import json
import math
import random
from dataclasses import replace
from functools import partial

import pytest
import torch

import clearformer as cf
from clearformer.config import (
    Constant,
    Cosine,
    DataConfig,
    InverseSqrt,
    Linear,
    RunConfig,
    StableThenDecay,
    TrainConfig,
)
from clearformer.data import DataFolders
from clearformer.explore.library import Library
from clearformer.families import generator
from clearformer.runs.checkpoint_choice import choose, comes_down, compared
from clearformer.runs.run import Run
from clearformer.tasks.measured import standard_error


@pytest.fixture
def make(tmp_path):
    return partial(train_run, tmp_path)


@pytest.fixture
def trained(make):
    return make()


def train_run(tmp_path, validation=None):
    source = tmp_path / "text.txt"
    source.write_text("some words to learn from, again and again\n" * 100)
    model = replace(generator(), length=16, layers=1, width=16, heads=2, hidden=32)
    train = TrainConfig(learning_rate=1e-2, batch_size=4, steps=6, evaluations=2, threads=1)
    if validation is not None:
        (tmp_path / "validation.txt").write_text(validation)
        validation = str(tmp_path / "validation.txt")
    data = DataConfig(source=str(source), validation=validation)
    config = RunConfig(model=model, data=data, train=train)
    run = Run(config, tmp_path / "runs" / "run", DataFolders(cache=tmp_path / "cache"))
    list(run.events())
    return run


BEST = {"step": 300, "value": 0.905}


def numbers(**last):
    usual = {"step": 400, "value": 0.9, "finished": True, "behind": 0.005, "error": 0.004}
    return {"best": BEST, "last": {**usual, **last}}


def chosen(numbers, schedule=Linear()):
    found = choose(numbers, 400, schedule)
    assert found.other == ({300: 400, 400: 300}[found.step])
    return found


def test_last_is_used_unless_significantly_worse():
    found = chosen(numbers())
    assert found.step == 400
    assert found.why == (
        "the last checkpoint; it is worse than step 300 by 0.0050, and two standard errors of "
        "that are 0.0080"
    )
    found = chosen(numbers(behind=0.0081))
    assert found.step == 300
    assert found.why.startswith("the best on its validation data; the last, step 400, is worse by")


@pytest.mark.parametrize("behind", [0.0, -0.01])
def test_last_that_is_as_good_needs_no_comparison(behind):
    found = choose(numbers(behind=behind, error=0.0), 400, Linear())
    assert found == choose(numbers(behind=behind, error=0.0, finished=False), 400, Constant())
    assert (found.step, found.other) == (400, None)
    assert found.why == "the last checkpoint, as good on its validation data as step 300"


def test_best_is_used_if_run_did_not_finish():
    assert chosen(numbers(finished=False)).step == 300
    assert chosen(numbers(), Constant()).step == 300
    assert chosen(numbers(step=350)).step == 300, "the last was not evaluated"
    assert chosen({"best": BEST}).step == 300, "as runs of earlier versions have it"
    for broken in ("nan", None, math.nan, math.inf, True, [1]):
        assert chosen(numbers(behind=broken)).step == 300
        assert chosen(numbers(error=broken)).step == 300


@pytest.mark.parametrize("broken", [None, [1], {"step": "../.."}, {"step": -1}, {}, "x"])
def test_last_is_used_without_valid_best(broken):
    found = choose({"best": broken}, 400, Linear())
    assert (found.step, found.other) == (400, None)
    assert choose({"best": {"step": 400}}, 400, Linear()).other is None


def test_comes_down_for_decaying_schedules():
    low = [Linear(), Cosine(final=0.1), StableThenDecay()]
    assert all(comes_down(each) for each in low)
    high = [Constant(), InverseSqrt(), Cosine(final=0.5)]
    assert not any(comes_down(each) for each in high)


def test_comparison_is_paired_by_text():
    """Most texts have equal scores for both models, so the paired difference has a small error."""
    draw = random.Random(0)
    best = [float(draw.random() < 0.9) for _ in range(500)]
    last = [1 - each if number < 5 else each for number, each in enumerate(best)]
    found = compared(best, last, larger_is_better=True)
    assert found["behind"] == pytest.approx((sum(best) - sum(last)) / 500)
    assert found["error"] < standard_error(best) / 2
    mirrored = compared(best, last, larger_is_better=False)
    assert mirrored["behind"] == -found["behind"]
    assert compared(None, last, True) is None
    assert compared(best, last[:-1], True) is None, "another validation"
    assert compared([1.0], [0.0], True) is None, "of one text nothing can be said"
    assert compared([math.nan, 1.0], [0.0, 1.0], True) is None


def test_choice_uses_state_saved_by_run(trained):
    """The state of a real run, saved and loaded."""
    run = trained
    saved = json.loads((run.folder / "checkpoints/step-6/state.json").read_text())
    assert saved["last"]["step"] == 6
    assert saved["last"]["finished"] is True
    assert {"behind", "error", "value"} <= saved["last"].keys()
    assert choose(saved, 6, run.config.train.schedule) == run.selected


@pytest.mark.parametrize(("validation", "step"), [(None, 6), ("日本語" * 300, 3)])
def test_every_way_to_a_run_opens_the_same_checkpoint(
    make, clearformer, tmp_path, validation, step
):
    """The longer the model learns, the worse it predicts quite another text."""
    run = make(validation).folder
    wanted, other = (cf.load(run / f"checkpoints/step-{each}") for each in (step, 9 - step))
    file = tmp_path / "a.safetensors"
    assert not clearformer("export", str(run), "--to", "safetensors", "--out", str(file)).code
    model = cf.load(run)
    model.export(tmp_path / "b.safetensors", to="safetensors")
    model.save(tmp_path / "c")
    opened = [
        model,
        *(cf.load(tmp_path / name) for name in ("a.safetensors", "b.safetensors", "c")),
    ]
    for each in opened:
        assert same(each, wanted)
        assert not same(each, other)
    figures = json.loads(clearformer("evaluate", str(run), "--json").out)
    assert figures["loss"] == wanted.evaluate().metrics["loss"]
    assert Library([run.parent]).entry("run").default_checkpoint() == f"step-{step}"


def same(one, other):
    pairs = zip(one.module.parameters(), other.module.parameters(), strict=True)
    return all(torch.equal(*pair) for pair in pairs)
