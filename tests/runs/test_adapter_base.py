"""Runs with adapters: exact resume, small checkpoints, and the model that an adapter belongs to."""

import json
import os
import shutil
import signal
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

import clearformer as cf
from clearformer.config import (
    Classifier,
    Constant,
    DataConfig,
    Origin,
    RunConfig,
    TrainConfig,
    run_from_json,
    to_json,
)
from clearformer.data import DataFolders
from clearformer.families import bert, modern
from clearformer.hub.quantized import to_int8
from clearformer.runs import checkpoint, finetune
from clearformer.runs.adapter_base import find_base, open_beside
from clearformer.runs.faults import parse
from clearformer.runs.load import best_checkpoint, open_any, open_run
from clearformer.runs.run import Run

SMALL = {"length": 16, "layers": 2, "width": 16, "hidden": 32, "heads": 2}
TRAIN = TrainConfig(
    learning_rate=1e-2, batch_size=8, steps=8, evaluations=2, threads=1, precision="float32",
    schedule=Constant(),
)  # fmt: skip


def finished(config, folder, **more):
    run = Run(config, folder, DataFolders(cache=folder.parent / "cache"), **more)
    list(run.events())
    return folder


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """A text, a table, and a generator and an encoder trained a little."""
    room = tmp_path_factory.mktemp("bases")
    (room / "text.txt").write_text("the cat sat on the mat, and the dog sat on the log.\n" * 60)
    (room / "other.txt").write_text("a bird sang in a tree, and a fish swam in the sea.\n" * 60)
    rows = [
        f"a {word} film {i},{label}\n"
        for i in range(20)
        for word, label in (("fine", "yes"), ("bad", "no"))
    ]
    (room / "rows.csv").write_text("text,label\n" + "".join(rows))
    data = DataConfig(source=str(room / "text.txt"))
    model = replace(modern("tiny"), **SMALL, key_heads=1)
    finished(RunConfig(model=model, data=data, train=TRAIN), room / "generator")
    masked = replace(data, masking=cf.config.Masking(), tokenizer="wordpiece", vocabulary=80)
    encoder = replace(bert("tiny"), **SMALL)
    finished(RunConfig(model=encoder, data=masked, train=TRAIN), room / "encoder")
    return room


def origin_of(folder):
    return Origin(folder=str(folder), sha256=finetune.identity(best_checkpoint(folder)))


def config_of(room, adapter, base="generator", **train):
    saved = open_run(room / base).config
    return replace(
        saved,
        data=replace(saved.data, source=str(room / "other.txt")),
        train=replace(TRAIN, adapter=adapter, **train),
        origin=origin_of(room / base),
    )


@pytest.mark.parametrize("kind", [cf.LoRA, cf.DoRA])
@pytest.mark.parametrize("base", [None, "bfloat16", "int8"])
def test_a_run_opens_as_it_was_evaluated(room, tmp_path, kind, base):
    before = (room / "generator" / "checkpoints" / "step-8" / "model.safetensors").read_bytes()
    config = config_of(room, kind(rank=2, base=base))
    run = Run(config, tmp_path / "run", DataFolders(cache=room / "cache"))
    events = list(run.events())
    assert events[-1].reason == "finished"
    tokens = torch.randint(0, 256, (2, 12))
    with torch.no_grad():
        expected = run.model.eval()(tokens)
        found = open_any(tmp_path / "run").model(tokens)
    assert (found - expected).abs().max() < 1e-5
    after = (room / "generator" / "checkpoints" / "step-8" / "model.safetensors").read_bytes()
    assert before == after


def test_checkpoints_hold_the_adapter_alone(room, tmp_path):
    finished(config_of(room, cf.DoRA(rank=2), ema_decay=0.9), tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints" / "step-8"
    names = load_file(folder / "adapter.safetensors")
    assert not (folder / "model.safetensors").exists()
    assert all(".parts." in name or ".magnitude." in name for name in names)
    others = load_file(folder / "state.safetensors")
    averages = {n.removeprefix("average.") for n in others if n.startswith("average.")}
    assert averages == set(names)
    assert not [name for name in others if name.startswith("buffers.")]
    slots = {name.rpartition(".")[0] for name in load_file(folder / "optimizer.safetensors")}
    assert slots == set(names)


def train_until_killed(settings, folder, cache, point, step):
    """In a child process: train until a fault or a step, and be killed there."""
    faults = parse(None if point == "step" else f"crash:{point}@{step}")
    run = Run(run_from_json(settings), folder, DataFolders(cache=cache), resume=True, faults=faults)
    for _ in run.events():
        if point == "step" and run.state.step >= step:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(("point", "step"), [("step", 6), ("before_rename", 4)])
def test_killed_and_resumed_equals_uninterrupted(room, tmp_path, several, curve, point, step):
    """With dropout of the adapter, an EMA, accumulation and recomputation."""
    adapter = cf.LoRA(rank=2, dropout=0.2, base="int8")
    config = config_of(
        room, adapter, ema_decay=0.9, accumulation_steps=2, recompute=1, evaluations=4
    )
    whole = finished(config, tmp_path / "whole")
    folder = tmp_path / "killed"
    arguments = (to_json(config), folder, tmp_path / "cache", point, step)
    with several.started(1, train_until_killed, tmp_path, *arguments) as (process,):
        process.join(300)
        output = (tmp_path / "rank-0.txt").read_text()
        assert process.exitcode == -signal.SIGKILL, output
    finished(config, folder, resume=True)
    rows = [[r for r in curve(each) if r["event"] != "resume"] for each in (folder, whole)]
    assert rows[0][-4:] == rows[1][-4:]
    for file in ("adapter.safetensors", "optimizer.safetensors"):
        one, other = (
            checkpoint.newest(each / "checkpoints", print).tensors(file) for each in (folder, whole)
        )
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_new_head_is_trained_whole_and_saved(room, tmp_path):
    config = config_of(room, cf.LoRA(rank=2), base="encoder")
    config = replace(
        config,
        model=replace(config.model, head=Classifier(pool="pooler")),
        data=replace(config.data, source=str(room / "rows.csv"), masking=None, vocabulary=None),
    )
    run = finished(config, tmp_path / "run")
    names = load_file(run / "checkpoints" / "step-8" / "adapter.safetensors")
    assert {name for name in names if name.startswith("head.")} == {
        "head.project.weight", "head.project.bias",
    }  # fmt: skip
    model = cf.load(run)
    assert model.classify(["a fine film"])[0].label in ("yes", "no")
    assert "adapter" in str(model.run_config.train)


def test_an_int8_run_is_a_base(room, tmp_path):
    to_int8(room / "generator", tmp_path / "int8")
    config = config_of(room, cf.LoRA(rank=2, alpha=2.0))
    config = replace(config, origin=origin_of(tmp_path / "int8"))
    run = Run(config, tmp_path / "run", DataFolders(cache=room / "cache"))
    assert run.adapter.base == "int8"
    list(run.events())
    tokens = torch.randint(0, 256, (2, 12))
    with torch.no_grad():
        assert torch.allclose(
            open_any(tmp_path / "run").model(tokens), run.model.eval()(tokens), atol=1e-5
        )
    with pytest.raises(ValueError, match=r"has int8 weights.*or train an --adapter"):
        finished(replace(config, train=TRAIN), tmp_path / "whole")


def test_merging_gives_a_plain_run(room, tmp_path):
    run = finished(config_of(room, cf.DoRA(rank=2)), tmp_path / "run")
    model = cf.merge(run, tmp_path / "merged")
    shutil.rmtree(run)
    tokens = torch.randint(0, 256, (1, 8))
    again = cf.load(tmp_path / "merged")
    assert again.run_config.train.adapter is None
    assert again.run_config.origin is None
    assert torch.equal(again.module(tokens), model.module(tokens))
    with pytest.raises(ValueError, match="has no adapter, so there is nothing to merge"):
        cf.merge(tmp_path / "merged", tmp_path / "twice")


def test_an_adapter_may_be_for_a_model_with_an_adapter(room, tmp_path):
    first = finished(config_of(room, cf.LoRA(rank=2)), tmp_path / "first")
    config = replace(config_of(room, cf.LoRA(rank=1)), origin=origin_of(first))
    second = finished(config, tmp_path / "second")
    assert cf.load(second).generate("the", max_tokens=3) is not None


# --- the model of an adapter -----------------------------------------------------------------


@pytest.fixture
def pair(room, tmp_path):
    """A base and an adapter's run in one folder, both of which may be changed."""
    shutil.copytree(room / "generator", tmp_path / "base")
    config = replace(config_of(room, cf.LoRA(rank=2)), origin=origin_of(tmp_path / "base"))
    return tmp_path / "base", finished(config, tmp_path / "run")


def test_a_base_that_was_moved_is_found_beside_the_run_or_by_name(pair, tmp_path):
    base, run = pair
    (tmp_path / "elsewhere").mkdir()
    base.rename(tmp_path / "elsewhere" / "base")
    with pytest.raises(ValueError, match=r"is an adapter for the model in .*base, which is not"):
        cf.load(run)
    assert cf.load(run, base=tmp_path / "elsewhere" / "base").path == run
    run.rename(tmp_path / "elsewhere" / "run")
    assert cf.load(tmp_path / "elsewhere" / "run").path is not None


def test_a_base_that_was_trained_further_still_has_the_checkpoint(pair, room):
    base, run = pair
    config = open_run(base).config
    finished(replace(config, train=replace(config.train, steps=10)), base, resume=True)
    assert best_checkpoint(base).step == 10
    assert find_base(open_any(run).config.origin, run).name == "step-8"


def test_another_base_is_refused(pair, room):
    base, run = pair
    shutil.rmtree(base)
    shutil.copytree(room / "encoder", base)
    with pytest.raises(ValueError, match=r"is an adapter for another model than .*base holds"):
        cf.load(run)


def rewritten(run, tensors=None, config=None):
    """The run with other tensors or another config, and a valid manifest."""
    saved = best_checkpoint(run)
    documents = {n: saved.json(n) for n in ("state.json", "config.json", "tokenizer.json")}
    documents["config.json"] |= config or {}
    found = saved.tensors("adapter.safetensors")
    files = {"adapter.safetensors": tensors(found) if tensors else found}
    shutil.rmtree(run / "checkpoints")
    checkpoint.write(run / "checkpoints", saved.step, files, documents, saved.facts)


NAME = "stack.blocks.0.attention.project.parts.q.A"


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        (lambda t: t | {NAME: t[NAME] * float("nan")}, "of the adapter has NaN or infinity"),
        (lambda t: t | {NAME: torch.zeros(3, 3)}, r"parts.q.A has shape \(3, 3\), but the model"),
        (lambda t: t | {"x": torch.zeros(1)}, "not in the model: x"),
        (lambda t: t | {"head.x": torch.zeros(1)}, r"not in the model: head.x"),
        (lambda t: {n: v for n, v in t.items() if n != NAME}, "missing stack.blocks.0.attention"),
        (lambda t: t | {NAME: t[NAME].int()}, "but weights are floats"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(pair, tensors, sentence):
    rewritten(pair[1], tensors)
    with pytest.raises(ValueError, match=sentence):
        cf.load(pair[1])


def test_a_config_that_does_not_fit_is_refused(pair):
    _, run = pair
    rewritten(run, config={"origin": None})
    with pytest.raises(ValueError, match=r"its config.json does not name its model"):
        cf.load(run)
    own = {"kind": "Origin", "folder": str(run), "sha256": "0" * 64}
    rewritten(run, config={"origin": own})
    with pytest.raises(ValueError, match="is an adapter for another model"):  # not for ever
        cf.load(run)
    document = best_checkpoint(run).json("config.json")
    rewritten(run, config={"train": document["train"] | {"adapter": None}, "origin": own})
    with pytest.raises(ValueError, match="is an adapter for another model"):
        cf.load(run)


def test_an_adapter_needs_a_model_to_start_from(room, tmp_path):
    config = replace(config_of(room, cf.LoRA(rank=2)), origin=None)
    with pytest.raises(ValueError, match=r"train.adapter changes a trained model: add --from RUN"):
        finished(config, tmp_path / "run")


def test_the_mean_of_adapters_is_refused(pair, tmp_path):
    from clearformer.runs.checkpoint_average import average

    with pytest.raises(ValueError, match="the mean of two factors is not that of their products"):
        average(pair[1], 2, tmp_path / "mean")


def test_settings_of_an_adapter_cannot_change_on_resume(pair, room):
    base, run = pair
    config = replace(config_of(room, cf.LoRA(rank=3)), origin=origin_of(base))
    with pytest.raises(ValueError, match=r"train.adapter.rank \(2 before, 3 now\)"):
        finished(config, run, resume=True)


def test_an_adapter_beside_its_base(pair, room, tmp_path):
    base, run = pair
    assert open_beside(run, best_checkpoint(base)) is not None
    with pytest.raises(ValueError, match="is not an adapter: serve it as a model of its own"):
        open_beside(base, best_checkpoint(base))
    config = replace(config_of(room, cf.LoRA(rank=2, base="int8")), origin=origin_of(base))
    assert open_beside(finished(config, tmp_path / "int8"), best_checkpoint(base)) is None
    shutil.copytree(base, tmp_path / "copy")
    manifest = json.loads((tmp_path / "copy/checkpoints/step-8/manifest.json").read_text())
    assert manifest["step"] == 8
    with pytest.raises(ValueError, match=r"is an adapter for .*, not for"):
        open_beside(run, best_checkpoint(room / "encoder"))
