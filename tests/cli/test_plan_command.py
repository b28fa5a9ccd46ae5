"""The command that `clearformer plan` prints starts the planned run."""

import json
import shlex
from dataclasses import replace

import pytest

from clearformer.cli import plan, train
from clearformer.cli.plan_command import command
from clearformer.config import Full, LinearScaling, RunConfig, to_json
from clearformer.families import preset
from clearformer.families.recipes import recipe

TINY = (
    "--layers", "2", "--width", "16", "--hidden", "32", "--heads", "2", "--key-heads", "1",
    "--length", "32", "--precision", "float32", "--threads", "1",
)  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("clearformer.plan.throughput.SECONDS", 0.05)
    # Not what the tests before have left in this process.
    monkeypatch.setattr("clearformer.plan.planner.base_bytes", lambda: 400 * 10**6)
    # It is for the whole process, and the other tests live in this one.
    monkeypatch.setattr("clearformer.training.malloc.limit_fragmentation", lambda: True)


def pasted(words):
    """The plan, its printed command, and the settings without a flag."""
    asked = plan.parse(words)
    return asked, *command(asked, asked.train)


@pytest.mark.parametrize(
    "line",
    [
        "modern-tiny",
        "modern-tiny --model.head.tied --model.biases.attention-output",
        "gpt2-small --model.head.no-tied --model.biases.no-attention --minutes 3",
        "modern-tiny --gradient-clip none",
        "modern-tiny --optimizer adamw --lr 1e-3 --beta2 0.9",
        "modern-tiny --optimizer adamw --lr 0.02",
        "gpt2-small --optimizer muon --lr 0.02 --adam-learning-rate 1e-4 --adam.beta2 0.5",
        "gpt2-small --position rotary --position.base 500",
        "gpt2-small --position alibi --schedule stable-then-decay --decay 0.3",
        "gpt2-small --position grid --columns 8",
        "modern-tiny --position.scaling linear-scaling --factor 2",
        "modern-tiny --position.scaling slower --factor 2",
        "modern-tiny --position learned --query-key-norm none --norm layer-norm",
        "modern-tiny --query-key-norm.epsilon 1e-3",
        "modern-tiny --steps 3",
        "modern-tiny --epochs 2.5",
        "original-base --epochs 2",
        "original-base --gradient-clip 0.5",
        "original-tiny --train.batch-tokens 3 --decoder-layers 2 --banned-ids 1 2",
        "original-tiny --generation.max-tokens 7 --renormalize --force-end",
        "sparse-strided --model.patterns.0.second.window 64",
        "bert-mini --masking none",
        "bert-mini --masking.unit words",
        "modern-tiny --masking masking --masking.rate 0.3",
        "classifier --head.classes 5 --head.pool max",
        "bert-tiny-masked --head classifier --head.classes 7",
        "modern-tiny --cache hidden-memory --cache.length 64",
        "modern-tiny --end-ids 1 2 --key-heads none --head.cap 3",
        "modern-tiny --generation.end-ids --recompute attention",
        "modern-tiny --recompute 2 --seed -3",
        'modern-tiny --data "a b.txt" --data-dir "my data" --validation=None',
        'modern-tiny --data=-x --validation=none --data.text-column ""',
        "modern-tiny --data - --name other",
        "modern-tiny --neighbours none --cache none",
        "--minutes 5",
        "gpt2 --minutes 5",
        "xl-tiny --cache none",
        "--data=-1",
        "modern-tiny --device cuda --threads 3 --ema-decay 0.9 --patience 3 --freeze body "
        "--embedding-std 0.02",
    ],
)
def test_command_starts_planned_run(line):
    asked, words, unsaid = pasted(shlex.split(line))
    assert unsaid == []
    again = train.parse(shlex.split(shlex.join(words)))
    assert (again.model, again.data, again.train) == (asked.model, asked.data, asked.train)
    assert again.data_dir == asked.data_dir


def test_command_lists_settings_without_flag(tmp_path):
    model = preset("gpt2-small")
    data, recipe_train = recipe(model)
    turned = preset("modern-tiny").position
    path = tmp_path / "config.json"
    for position, silent in (
        (
            replace(turned, scaling=LinearScaling(factor=2)),
            "model.position.scaling",
        ),  # within a choice
        (model.position, None),
    ):
        other = replace(model, position=position, patterns=(Full(), Full()))
        config = RunConfig(model=other, data=replace(data, validation="None"), train=recipe_train)
        path.write_text(json.dumps(to_json(config)))
        _, words, unsaid = pasted([str(path)])
        assert words == ["gpt2-small", *(["--model.position", "rotary"] if silent else [])]
        silent = [silent] if silent else []
        assert unsaid == [*silent, "model.patterns", "data.validation"]
    tiny = preset("modern-tiny")
    between = replace(tiny, position=replace(turned, scaling=LinearScaling(factor=2.5)))
    path.write_text(json.dumps(to_json(between)))
    assert pasted([str(path)])[1:] == (["modern-tiny"], ["model.position.scaling"])


def test_custom_model_is_planned_with_from(clearformer, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat. " * 200)
    run = tmp_path / "a run"
    words = (*TINY, "--data", str(text), "--out", str(run), "--compile", "off", "--quiet")
    trained = clearformer("train", "modern-tiny", *words, "--steps", "2", "--name", "mine")
    assert trained.code == 0, trained.err
    for path in (run, run / "config.json"):
        asked, words, unsaid = pasted([str(path), "--seed", "3"])
        assert (words[:2], unsaid) == (["--from", str(run)], [])
        again = train.parse(words)
        assert (again.model, again.data, again.train) == (asked.model, asked.data, asked.train)
    planned = clearformer("plan", str(run), "--memory", "2 GB").out.splitlines()[-1]
    assert shlex.split(planned)[-2:] == ["--fit", "2 GB"]
    other = clearformer("plan", str(run), "--layers", "1").out
    assert "(no command starts this run: model.layers is 1, but" in other
    path = tmp_path / "config.json"
    path.write_text((run / "config.json").read_text())
    assert "(no command starts this run: " in clearformer("plan", str(path)).out
