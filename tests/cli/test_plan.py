"""`clearformer plan`: numbers, a command that works, and refusals that help."""

import json
import os
import re
import shlex
from dataclasses import replace

import pytest

from clearformer.cli import plan, train
from clearformer.config import Full, RunConfig, Slower, to_json
from clearformer.families import preset
from clearformer.families.recipes import recipe
from clearformer.plan.planner import Plan as Found

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
    monkeypatch.setattr("clearformer.train.malloc.keep_small", lambda: True)


def test_a_plan_says_what_a_run_takes_and_its_command_runs(clearformer, tmp_path):
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
    assert "note: there is room to spare: without --fit a step takes less time" in found.out
    assert words[words.index("--data.source") + 1] == str(text)
    ran = clearformer(*words[1:], "--out", str(tmp_path / "run"), "--compile", "off", "--quiet")
    assert ran.code == 0, ran.err
    assert "to fit into 2GB, 1 micro-batches a step, recomputing nothing" in ran.err
    assert "note: there is room to spare" in ran.err
    goes_on = clearformer(
        *words[1:], "--out", str(tmp_path / "run"), "--compile", "off", "--quiet", "--resume"
    )
    assert goes_on.code == 0, goes_on.err
    assert "micro-batches" not in goes_on.err
    again = clearformer("plan", str(tmp_path / "run"), "--minutes", "1")
    assert "1 minutes" in again.out
    assert "steps" in again.out


def test_texts_are_timed_at_the_length_they_have(clearformer, tmp_path):
    """Rows are padded to the longest of their batch, not to the most the model can read."""
    table = tmp_path / "table.csv"
    rows = [f"{['good', 'bad'][n % 2]} thing{n},{n % 2}" for n in range(100)]
    table.write_text("\n".join(["text,label", *rows]))
    words = ("plan", "classifier-imdb", *TINY[:6], "--heads", "2", "--length", "32", "--batch", "8")
    found = clearformer(*words, "--data", str(table), "--steps", "3")
    assert found.code == 0, found.err
    assert "GFLOP, 16 tokens," in found.out  # 8 rows of 2
    other = clearformer(*words, "--data", str(tmp_path / "none.csv"), "--steps", "3")
    assert "GFLOP, 256 tokens," in other.out  # 8 rows of 32: nothing else is known
    assert "note: times are for texts of 32 tokens: " in other.out


def test_pairs_are_planned_as_long_as_they_are(clearformer, tmp_path):
    small = "--layers 1 --width 16 --heads 2 --hidden 32 --batch 8 --steps 4 --precision float32"
    known = clearformer("plan", "original-tiny", *small.split())
    tokens = int(re.search(r"([\d,]+) tokens, ", known.out)[1])
    assert 8 * 5 < tokens < 8 * 20  # numbers in words
    assert "8 at a time" in known.out
    absent = str(tmp_path / "absent.tsv")
    assumed = clearformer("plan", "original-tiny", *small.split(), "--data", absent)
    assert "256 tokens" in assumed.out
    assert "note: pairs of 32 and 32 tokens are assumed: " in assumed.out


def test_a_config_in_a_file(clearformer, tmp_path):
    model = preset("modern-tiny")
    data, train = recipe(model)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(to_json(RunConfig(model=model, data=data, train=train))))
    assert "modern-tiny: " in clearformer("plan", str(path), *TINY).out
    path.write_text(json.dumps(to_json(model)))
    assert "modern-tiny: " in clearformer("plan", str(path), *TINY).out
    path.write_text("{}")
    assert "is no config of a run or a model" in clearformer("plan", str(path)).complaint


def test_what_cannot_be_is_refused(clearformer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = clearformer("plan", "modern-tiny", *TINY, "--memory", "10MB").complaint
    assert "modern-tiny does not fit into 10.0 MB: Python and torch alone take 400 MB" in wrong
    assert wrong.endswith("It would with --memory 0.5GB or more")
    assert "no size of memory" in clearformer("plan", "modern-tiny", "--memory", "lots").complaint
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
        (f"--batch {10**12}", "batch is 1000000000000, but it must be at most 131,072"),
        (f"--threads {10**20}", "threads is 100000000000000000000, but it must be at most 1,024"),
        (f"--memory {10**400}GB", "is more memory than there is: write at most 1000000TB"),
        (f"--gpus 8 --gpu-memory {10**400}GB", "is more memory than there is"),
    ],
)
def test_what_is_out_of_range_is_refused(clearformer, words, complaint):
    assert complaint in clearformer("plan", "modern-tiny", *TINY, *words.split()).complaint


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            "--gpus 8 --memory 4GB",
            "--memory 4GB is for this machine, but --gpus 8 plans for others",
        ),
        ("--gpu-memory 4GB", "--gpu-memory is 4GB, but it counts with --gpus alone: add how many"),
        ("--gpu-tflops 4", "--gpu-tflops is 4.0, but it counts with --gpus alone"),
        ("--utilisation 0.5", "--utilisation is 0.5, but it counts with --gpus alone"),
        ("--tokens 500", "or leave it out; of a step of pairs it is --train.tokens"),
    ],
)
def test_flags_that_would_not_count_are_refused(clearformer, words, complaint):
    assert complaint in clearformer("plan", "modern-tiny", *TINY, *words.split()).complaint


def test_a_long_time_is_planned(clearformer, tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat on the mat. " * 200)
    words = ("plan", "modern-tiny", *TINY, "--data", str(tmp_path / "text.txt"))
    for budget in ("--minutes", "--epochs", "--steps"):
        found = clearformer(*words, budget, "1000000000")
        assert found.code == 0, found.err
        assert "steps, " in found.out


def test_gpus_on_paper(clearformer):
    found = clearformer("plan", "gpt2-small", "--layers", "2", "--gpus", "8", "--tokens", "1e9")
    assert found.code == 0, found.err
    assert "1e+09 tokens" in found.out
    assert "assumed: 80.0 GB and 312 TFLOP/s each, of which training reaches 40%" in found.out
    assert "a copy on each (ddp)" in found.out
    assert "shared out (fsdp2)" in found.out
    assert "limits:" in found.out
    small = clearformer("plan", "gpt2-small", "--layers", "2", "--gpus", "8", "--gpu-memory", "1GB")
    assert "does not fit on 8 GPUs of 1.0 GB" in small.complaint


def pasted(words):
    """What was planned, the command that is printed for it, and what it cannot say."""
    asked = plan.parse(words)
    config = RunConfig(model=asked.model, data=asked.data, train=asked.train)
    return asked, *plan.command(asked, Found(config, None, 0))


@pytest.mark.parametrize(
    "line",
    [
        "modern-tiny",
        "modern-tiny --model.head.tied --model.biases.attention-output",
        "gpt2-small --model.head.no-tied --model.biases.no-attention --minutes 3",
        "modern-tiny --clip none",
        "modern-tiny --optimizer adamw --lr 1e-3 --beta2 0.9",
        "modern-tiny --optimizer adamw --lr 0.02",
        "gpt2-small --optimizer muon --lr 0.02 --adam-lr 1e-4 --adam.beta2 0.5",
        "gpt2-small --position rotary --position.base 500",
        "gpt2-small --position alibi --schedule stable-then-decay --decay 0.3",
        "gpt2-small --position grid --columns 8",
        "modern-tiny --position.scaling slower --factor 2",
        "modern-tiny --position learned --query-key-norm none --norm layer-norm",
        "modern-tiny --query-key-norm.epsilon 1e-3",
        "modern-tiny --steps 3",
        "modern-tiny --epochs 2.5",
        "original-base --epochs 2",
        "original-base --clip 0.5",
        "original-tiny --train.tokens 3 --decoder-layers 2 --rules target-rules --never 1 2",
        "original-tiny --rules target-rules --rules.most 7 --rules.share given",
        "sparse-strided --model.patterns.0.second.window 64",
        "bert-mini --masking none",
        "bert-mini --masking.unit words",
        "modern-tiny --masking masking --masking.share 0.3",
        "classifier --head.classes 5 --head.pool max",
        "bert-tiny-masked --head classifier --head.classes 7",
        "modern-tiny --past hidden-memory --past.length 64",
        "modern-tiny --head.ends 1 2 --key-heads none --head.cap 3",
        "modern-tiny --head.ends --recompute attention",
        "modern-tiny --recompute 2 --seed -3",
        'modern-tiny --data "a b.txt" --data-dir "my data" --validation=None',
        'modern-tiny --data=-x --validation=none --data.text ""',
        "modern-tiny --data - --name other",
        "modern-tiny --neighbours none --past none",
        "--minutes 5",
        "gpt2 --minutes 5",
        "xl-tiny --past none",
        "--data=-1",
        "modern-tiny --device cuda --threads 3 --ema 0.9 --patience 3 --freeze body --tables 0.02",
    ],
)
def test_the_command_begins_the_very_run_that_was_planned(line):
    asked, words, unsaid = pasted(shlex.split(line))
    assert unsaid == []
    again = train.parse(shlex.split(shlex.join(words)))
    assert (again.model, again.data, again.train) == (asked.model, asked.data, asked.train)
    assert again.data_dir == asked.data_dir


def test_the_command_names_what_no_flag_can_say(tmp_path):
    model = preset("gpt2-small")
    data, recipe_train = recipe(model)
    turned = preset("modern-tiny").position
    path = tmp_path / "config.json"
    for position, silent in (
        (replace(turned, scaling=Slower(factor=2)), "model.position.scaling"),  # within a choice
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
    between = replace(tiny, position=replace(turned, scaling=Slower(factor=2.5)))
    path.write_text(json.dumps(to_json(between)))
    assert pasted([str(path)])[1:] == (["modern-tiny"], ["model.position.scaling"])


def test_a_model_that_is_no_preset_is_begun_from(clearformer, tmp_path):
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
    assert "(no command begins this run: model.layers is 1, but" in other
    path = tmp_path / "config.json"
    path.write_text((run / "config.json").read_text())
    assert "(no command begins this run: " in clearformer("plan", str(path)).out


def test_a_config_that_is_none_is_refused_at_once(clearformer, tmp_path):
    path = tmp_path / "config.json"
    path.write_text("[" * 100_000)
    assert "config.json is no JSON: maximum recursion" in clearformer("plan", str(path)).complaint
    path.write_text(nested(500))
    for place in (path, tmp_path):
        complaint = clearformer("plan", str(place)).complaint
        assert "config.json is no config of a run or a model: maximum recursion" in complaint
    path.unlink()
    assert "config.json cannot be read: No such" in clearformer("plan", str(tmp_path)).complaint
    os.mkfifo(path)
    for place in (path, "/dev/zero"):
        assert "is no regular file, but one" in clearformer("plan", str(place)).complaint
    assert "config.json is a named pipe, but a" in clearformer("plan", str(tmp_path)).complaint


def nested(depth):
    """A run's config whose pattern is made of patterns, deeper than anyone reads."""
    model = preset("modern-tiny")
    data, train_config = recipe(model)
    text = json.dumps(to_json(RunConfig(model=model, data=data, train=train_config)))
    causal = json.dumps(to_json(model.patterns[0]))
    assert text.count(causal) == 1
    deep = '{"kind": "Both", "first": ' * depth + causal + f', "second": {causal}}}' * depth
    return text.replace(causal, deep)
