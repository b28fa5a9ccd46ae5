"""`clearformer plan`: numbers, a runnable command, and helpful errors."""

import json
import os
import shlex

import pytest

from clearformer.config import RunConfig, to_json
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


def test_plan_prints_memory_and_runnable_command(clearformer, tmp_path):
    text = tmp_path / "a text.txt"
    text.write_text("the cat sat on the mat. " * 200)
    found = clearformer(
        "plan", "modern-tiny", *TINY, "--data", str(text), "--memory", "2GB", "--steps", "3"
    )
    assert found.code == 0, found.err
    for part in ("parameters", "weights", "gradients", "optimizer", "activations", "in all",
                 "of 2.0 GB", "tables of scores", "GFLOP", "tokens/s", "for 3 steps"):  # fmt: skip
        assert part in found.out
    words = shlex.split(found.out.splitlines()[-1])
    assert words[:3] == ["clearformer", "train", "modern-tiny"]
    assert "note: memory is sufficient without --fit" in found.out
    assert words[words.index("--data.source") + 1] == str(text)
    ran = clearformer(*words[1:], "--out", str(tmp_path / "run"), "--compile", "off", "--quiet")
    assert ran.code == 0, ran.err
    assert "to fit into 2GB: 1 micro-batches per step, recomputing nothing" in ran.err
    assert "note: memory is sufficient without --fit" in ran.err
    goes_on = clearformer(
        *words[1:], "--out", str(tmp_path / "run"), "--compile", "off", "--quiet", "--resume"
    )
    assert goes_on.code == 0, goes_on.err
    assert "micro-batches" not in goes_on.err
    again = clearformer("plan", str(tmp_path / "run"), "--minutes", "1")
    assert "1 minutes" in again.out
    assert "steps" in again.out


def test_accepts_config_file(clearformer, tmp_path):
    model = preset("modern-tiny")
    data, train = recipe(model)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(to_json(RunConfig(model=model, data=data, train=train))))
    assert "modern-tiny: " in clearformer("plan", str(path), *TINY).out
    path.write_text(json.dumps(to_json(model)))
    assert "modern-tiny: " in clearformer("plan", str(path), *TINY).out
    path.write_text("{}")
    assert "is not a config of a run or a model" in clearformer("plan", str(path)).complaint


def test_rejects_impossible_plans(clearformer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = clearformer("plan", "modern-tiny", *TINY, "--memory", "10MB").complaint
    assert "modern-tiny does not fit into 10.0 MB: Python and torch alone take 400 MB" in wrong
    assert wrong.endswith("It would with --memory 0.5GB or more")
    assert "not a memory size" in clearformer("plan", "modern-tiny", "--memory", "lots").complaint
    assert "there is no model 'gtp2'" in clearformer("plan", "gtp2").complaint
    fit = clearformer("train", "modern-tiny", *TINY, "--fit", "10MB")
    assert fit.complaint == wrong.replace("--memory", "--fit")
    none = clearformer("train", "modern-tiny", "--processes", "0", "--out", "some/run")
    assert none.complaint == "--processes is 0, but it must be at least 1"
    assert list(tmp_path.iterdir()) == []
    wide = ("--layers", "1", "--length", "32", "--precision", "float32")
    narrow = clearformer("plan", "gpt2-small", *wide, "--memory", "500MB")
    assert "or a smaller preset or --model.width; or several GPUs" in narrow.complaint


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--gpus 0", "--gpus is 0, but it must be at least 1"),
        (f"--gpus {10**23}", f"--gpus is {10**23}, but at most 1,000,000 can be planned"),
        ("--gpu-tflops 0", "--gpu-tflops is 0.0, but it must be at least 0.001"),
        ("--utilisation 1e-300", "--utilisation is 1e-300, but it must be at least 0.01"),
        ("--utilisation nan", "--utilisation is nan, but it must be at least 0.01"),
        ("--utilisation 2", "--utilisation is 2.0, but at most 1 can be planned"),
        ("--gpus 8 --tokens 1e300", "--tokens is 1e+300, but at most"),
        ("--minutes 1e308", "minutes is 1e+308, but it must be at most 1,000,000,000"),
        ("--epochs 1e308", "epochs is 1e+308, but it must be at most"),
        (f"--steps {10**400}", "steps is 10000000000000000000000000000000"),
        (f"--batch-size {10**12}", "batch_size is 1000000000000, but it must be at most 131,072"),
        (f"--threads {10**20}", "threads is 100000000000000000000, but it must be at most 1,024"),
        (f"--memory {10**400}GB", "is too much memory: write at most 1000000TB"),
        (f"--gpus 8 --gpu-memory {10**400}GB", "is too much memory"),
    ],
)
def test_rejects_values_out_of_range(clearformer, words, complaint):
    assert complaint in clearformer("plan", "modern-tiny", *TINY, *words.split()).complaint


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            "--gpus 8 --memory 4GB",
            "--memory 4GB is for this machine, but --gpus 8 estimates others",
        ),
        ("--gpu-memory 4GB", "--gpu-memory is 4GB, but it is used with --gpus only: add --gpus"),
        ("--gpu-tflops 4", "--gpu-tflops is 4.0, but it is used with --gpus only"),
        ("--utilisation 0.5", "--utilisation is 0.5, but it is used with --gpus only"),
        ("--tokens 500", "or leave it out; of a step of pairs it is --train.batch-tokens"),
    ],
)
def test_rejects_flags_without_effect(clearformer, words, complaint):
    assert complaint in clearformer("plan", "modern-tiny", *TINY, *words.split()).complaint


def test_rejects_invalid_config(clearformer, tmp_path):
    path = tmp_path / "config.json"
    path.write_text("[" * 100_000)
    assert (
        "config.json is not valid JSON: maximum recursion"
        in clearformer("plan", str(path)).complaint
    )
    path.write_text(nested(500))
    for place in (path, tmp_path):
        complaint = clearformer("plan", str(place)).complaint
        assert "config.json is not a config of a run or a model: maximum recursion" in complaint
    path.unlink()
    assert "config.json cannot be read: No such" in clearformer("plan", str(tmp_path)).complaint
    os.mkfifo(path)
    for place in (path, "/dev/zero"):
        assert "is not a regular file, but one" in clearformer("plan", str(place)).complaint
    assert "config.json is a named pipe, but a" in clearformer("plan", str(tmp_path)).complaint


def nested(depth):
    """A run's config with a deeply nested pattern."""
    model = preset("modern-tiny")
    data, train_config = recipe(model)
    text = json.dumps(to_json(RunConfig(model=model, data=data, train=train_config)))
    causal = json.dumps(to_json(model.patterns[0]))
    assert text.count(causal) == 1
    deep = '{"kind": "Both", "first": ' * depth + causal + f', "second": {causal}}}' * depth
    return text.replace(causal, deep)
