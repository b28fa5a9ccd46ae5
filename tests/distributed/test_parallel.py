"""Distributed runs equal single-process runs: losses, weights, and files on disk."""

import os
from dataclasses import replace

import pytest

from clearformer.builder import build
from clearformer.config import (
    AdamW,
    Constant,
    DataConfig,
    Dropout,
    HiddenMemory,
    Muon,
    RunConfig,
    TrainConfig,
    run_from_json,
    to_json,
)
from clearformer.data import DataFolders
from clearformer.distributed import process_group
from clearformer.families import gpt2, modern, original, xl
from clearformer.runs import checkpoint
from clearformer.runs.run import Run
from clearformer.training.events import Skipped, Step
from clearformer.training.recompute import recompute
from clearformer.training.step import NonFiniteError

# Not used here: it waits in the background, and test_process_group.py looks at its end.
pytestmark = pytest.mark.usefixtures("hanging")

TEXT = "the cat sat on the mat, and the dog sat on the log.\n" * 60


def generator(folder, **train):
    model = modern("tiny")
    model = replace(model, length=16, layers=2, width=16, hidden=32, heads=2, key_heads=1)
    return config(folder, model, **train)


def config(folder, model, source="text.txt", **train):
    (folder / "text.txt").write_text(TEXT)
    settings = {
        "learning_rate": 1e-2,
        "batch_size": 8,
        "steps": 4,
        "evaluations": 2,
        "gradient_clip": 0.5,
        "threads": 1,
    }
    # A large epsilon, or Adam makes as much of a difference in rounding as of a gradient.
    settings |= {"optimizer": AdamW(epsilon=1e-2), "schedule": Constant()}
    model = replace(model, dropout=Dropout())
    data = DataConfig(source=str(folder / source))
    train = TrainConfig(**{**settings, "precision": "float32", **train})
    return RunConfig(model=model, data=data, train=train)


def losses(run):
    return [event.loss for event in run.events() if isinstance(event, Step)]


def alone(config, folder, **more):
    return losses(Run(config, folder, DataFolders(cache=folder.parent / "cache"), **more))


def ranked(settings, folder, resume=False):
    """What one of several ranks does: the losses of each config, one run after the other."""
    group = process_group.join(os.environ, timeout=300)
    found = []
    for name, each in settings:
        run = Run(
            each and run_from_json(each),
            folder / name,
            DataFolders(cache=folder / "cache"),
            resume=resume,
            say=lambda words: None,
            group=group,
        )
        found.append(losses(run))
    del run
    group.heartbeat.stop()
    return found


def weights(folder):
    found = checkpoint.newest(folder / "checkpoints", print)
    return {
        name: value
        for file in ("model.safetensors", "state.safetensors")
        for name, value in found.tensors(file).items()
        if not name.startswith("generator")
    }


def farthest(one, other):
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def test_two_ranks_match_single_process(tmp_path, several):
    """Copies and parts, accumulation, a running average, tied weights, a memory, pairs."""
    plain = generator(tmp_path, ema_decay=0.9, accumulation_steps=4)
    tied = config(
        tmp_path,
        replace(gpt2("small"), length=16, layers=2, width=16, heads=2, hidden=32),
    )
    remembering = replace(
        xl("tiny"), length=8, layers=2, width=16, heads=2, hidden=32, cache=HiddenMemory(length=12)
    )
    remembering = config(tmp_path, remembering, accumulation_steps=4)
    words = [f"{a}{b}{c}" for a in "abcdef" for b in "abc" for c in "abcd"]
    (tmp_path / "a.in").write_text("\n".join(words))
    (tmp_path / "a.out").write_text("\n".join(word[::-1] for word in words))
    pairs = replace(
        original("tiny"), length=16, layers=1, decoder_layers=1, width=16, heads=2, hidden=32
    )
    pairs = config(tmp_path, pairs, batch_size=6)
    files = f"{tmp_path / 'a.in'},{tmp_path / 'a.out'}"
    pairs = replace(pairs, data=DataConfig(source=files, tokenizer="characters"))
    cases = {"plain": plain, "tied": tied, "remembering": remembering, "pairs": pairs}
    expected = {name: alone(each, tmp_path / name) for name, each in cases.items()}
    settings = [
        (f"{name}-{way}", to_json(replace(each, train=replace(each.train, parallel=way))))
        for name, each in cases.items()
        for way in ("ddp", "fsdp2")
    ]
    found = several.run(2, ranked, tmp_path, settings, tmp_path)
    assert found[0] == found[1]
    for (name, _), curve in zip(settings, found[0], strict=True):
        one = name.partition("-")[0]
        assert curve == pytest.approx(expected[one], abs=1e-6), name
        assert farthest(weights(tmp_path / name), weights(tmp_path / one)) < 2e-6, name


def test_resume_with_other_world_size(tmp_path, several):
    """1, then 2 with parts, then 4 with copies, then 1: the curve of a run that was always one."""
    folder = tmp_path / "changing"
    expected = alone(generator(tmp_path, steps=8), tmp_path / "whole")

    def until(steps, way="ddp"):
        return generator(tmp_path, steps=steps, parallel=way)

    found = alone(until(2), folder)
    for world, config in ((2, until(4, "fsdp2")), (4, until(6))):
        settings = [("changing", to_json(config))]
        curves = several.run(world, ranked, tmp_path, settings, tmp_path, True)
        assert len(curves) == world
        found += curves[0][0]
    said = []
    found += alone(until(8), folder, resume=True, say=said.append)
    assert found == pytest.approx(expected, abs=1e-6)
    assert "world was 4 and is 1: the run continues, but not bit for bit" in said[-1]
    kept = [path.name for path in (folder / "checkpoints").iterdir()]
    assert sorted(kept) == ["step-6", "step-8"]


def test_stop_and_resume_of_two_ranks_is_bitwise(tmp_path, several):
    """Dropout on each rank, Muon, parts: stopped after step 2 and continued."""
    config = generator(tmp_path, optimizer=Muon(), parallel="fsdp2")
    dropout = replace(config.model.dropout, residual=0.2)
    config = replace(config, model=replace(config.model, dropout=dropout))
    half = to_json(replace(config, train=replace(config.train, steps=2)))
    settings = [("whole", to_json(config)), ("half", half), ("half", to_json(config))]
    whole, first, rest = several.run(2, ranked, tmp_path, settings, tmp_path, True)[0]
    assert whole == first + rest
    assert farthest(weights(tmp_path / "whole"), weights(tmp_path / "half")) == 0
    states = checkpoint.newest(tmp_path / "half/checkpoints", print).tensors("state.safetensors")
    assert not states["generator.cpu"].equal(states["generator.cpu.1"])


def poisoned(settings, folder):
    """One rank computes nonsense in the third step, with blocks in parts and recomputed."""
    group = process_group.join(os.environ, timeout=300)

    def make(config, seed):
        model = build(config, seed)
        model.stack.runs = (recompute,)

        def spoil(module, inputs, output):
            return output * float("nan") if group.rank == 1 and run.state.step == 2 else output

        model.stack.norm.register_forward_hook(spoil)
        return model

    places = DataFolders(cache=folder.parent / "cache")
    run = Run(run_from_json(settings), folder, places, make=make, group=group)
    found = []
    try:
        found.extend(event.loss for event in run.events() if isinstance(event, Step))
    except NonFiniteError as problem:
        found.append(str(problem))
    own = [run.parallel.full_tensor(each.detach()) for each in run.model.parameters()]
    group.heartbeat.stop()
    group.gather("done")
    return [found, all(bool(each.isfinite().all()) for each in own)]


def test_nan_on_one_rank_stops_all_before_update(tmp_path, several):
    config = generator(tmp_path, parallel="fsdp2", evaluations=1)
    expected = alone(config, tmp_path / "whole")
    one, other = several.run(2, poisoned, tmp_path, to_json(config), tmp_path / "run")
    assert one == other
    (*curve, sentence), finite = one
    assert curve == pytest.approx(expected[:2], abs=1e-6)
    assert finite
    assert sentence.startswith("step 3: the loss is nan")
    assert "it arose in stack.norm." in sentence, "the rank that knows tells all"
    records = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    assert '"exit": 3' in records[-1]


def overflowing(settings, folder):
    """In the second step a part that one rank alone has of a gradient overflows float16."""
    group = process_group.join(os.environ, timeout=300)
    places = DataFolders(cache=folder.parent / "cache")
    run = Run(run_from_json(settings), folder, places, group=group)
    found = []
    for event in run.events():
        if isinstance(event, Step | Skipped):
            found.append([type(event).__name__, event.step])
        if len(found) == 1 and group.rank == 1:
            weight = run.model.stack.blocks[0].attention.output.weight
            spoil = weight.register_post_accumulate_grad_hook(
                lambda weight: weight.grad.to_local().fill_(float("inf"))
            )
        elif len(found) == 2 and group.rank == 1:
            spoil.remove()
    own = [run.parallel.full_tensor(each.detach()) for each in run.model.parameters()]
    scale = run.state.scaling.scale
    group.heartbeat.stop()
    group.gather("done")
    return [found, scale, all(bool(each.isfinite().all()) for each in own)]


def test_overflow_on_one_rank_is_skipped_by_all(tmp_path, several):
    config = generator(tmp_path, parallel="fsdp2", precision="float16", evaluations=1)
    one, other = several.run(2, overflowing, tmp_path, to_json(config), tmp_path / "run")
    assert one == other
    found, scale, finite = one
    assert found == [["Step", 1], ["Skipped", 2], ["Step", 3], ["Step", 4]]
    assert (scale, finite) == (2.0**15, True)
