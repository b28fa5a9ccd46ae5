"""`clearformer train` and `generate`: from the user's own file to text, in two commands."""

import json
import os
import signal
import sys
import time
from typing import get_args, get_type_hints

import pytest

from clearformer.cli.train import parse
from clearformer.config import DataConfig
from clearformer.runs.signals import StopSignals

TINY = ("--length", "16", "--layers", "1", "--width", "16", "--heads", "2", "--key-heads", "1",
        "--model.hidden", "32", "--batch-size", "4", "--threads", "1")  # fmt: skip


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CLEARFORMER_DATA", raising=False)
    path = tmp_path / "mine.txt"
    path.write_text("\n".join(f"{i} bottles of ale on the wall" for i in range(400)))
    return str(path)


def test_train_resume_generate(clearformer, text, tmp_path):
    out = str(tmp_path / "run")
    first = clearformer("train", "--data", text, "--out", out, "--steps", "6", *TINY)
    assert first.code == 0, first.err
    assert "training: modern-tiny" in first.out
    assert "validation loss" in first.out
    assert "finished at step 6" in first.out
    assert clearformer("train", "--data", text, "--out", out, "--steps", "6", *TINY).complaint == (
        f"{out} already holds a run at step 6: add --resume to continue it, or choose another --out"
    )
    again = clearformer("train", "--data", text, "--out", out, "--steps", "9", "--resume", *TINY)
    assert "continuing at step 6" in again.out
    assert "finished at step 9" in again.out
    said = clearformer("generate", out, "1 bottles", "--max-tokens", "20", "--seed", "3")
    assert said.code == 0, said.err
    assert said.out.startswith("1 bottles")
    assert (
        said.out
        == clearformer("generate", out, "1 bottles", "--max-tokens", "20", "--seed", "3").out
    )


KINDS = set(get_args(get_type_hints(DataConfig)["tokenizer"]))
ONLY_IMPORTED = {"sentencepiece", "fallback-bpe"}


@pytest.mark.parametrize("kind", sorted(KINDS - ONLY_IMPORTED))
def test_samples_with_every_tokenizer(clearformer, text, tmp_path, kind):
    """Without a token that begins a text, samples begin like the validation text."""
    held_back = tmp_path / "held-back.txt"
    held_back.write_text("wall of ale and bottles on it\n" * 20)
    out = tmp_path / "run"
    size = () if kind in ("bytes", "characters") else ("--data.vocabulary", "300")
    done = clearformer("train", "--data", text, "--validation", str(held_back), "--out", str(out),
                       "--tokenizer", kind, *size, "--steps", "2", "--evaluations", "2",
                       *TINY)  # fmt: skip
    assert done.code == 0, done.err
    assert "no sample" not in done.out + done.err
    samples = [json.loads(line) for line in (out / "samples.jsonl").read_text().splitlines()]
    assert [each["step"] for each in samples] == [1, 2]
    assert all(each["text"].strip() for each in samples)
    if kind == "words":
        assert all(each["text"].startswith("wall ") for each in samples)


def test_json_events(clearformer, text, tmp_path):
    out = clearformer(
        "train", "--data", text, "--out", str(tmp_path / "r"), "--steps", "3", "--json", *TINY
    ).out
    events = [json.loads(line) for line in out.splitlines()]
    assert events[0] == {
        "event": "start", "version": 2, "counts": "tokens", "figure": "bits_per_byte",
    }  # fmt: skip
    steps = [e for e in events if e["event"] == "step"]
    assert [e["step"] for e in steps] == [1, 2, 3]
    assert {"train_loss", "learning_rate", "tokens"} <= steps[0].keys()
    (evaluated,) = (e for e in events if e["event"] == "evaluation" and e["step"] == 3)
    assert {"validation_loss", "validation_bits_per_byte", "sample"} <= evaluated.keys()
    assert events[-1] == {"event": "ended", "step": 3, "reason": "finished", "exit": 0}


def test_quiet_prints_only_result(clearformer, text, tmp_path):
    out = clearformer(
        "train", "--data", text, "--out", str(tmp_path / "r"), "--steps", "3", "--quiet", *TINY
    ).out
    assert out.count("\n") == 1
    assert "bits per byte" in out


def forked(words):
    """In a forked process: `clearformer WORDS`, its output in a file."""
    from clearformer.cli.main import main

    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK"):
        del os.environ[name]  # it is a run of one process
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
    main(words)


@pytest.mark.parametrize(
    ("which", "code"), [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_signal_saves_and_exits(text, tmp_path, several, which, code):
    out, log = tmp_path / "run", tmp_path / "rank-0.txt"
    words = ["train", "--data", text, "--out", str(out), "--steps", "100000", "--json", *TINY]
    with several.started(1, forked, tmp_path, words) as (process,):
        while not log.exists() or log.read_text().count("\n") < 20:
            assert process.is_alive(), log.read_text()
            time.sleep(0.02)
        os.kill(process.pid, which)
        process.join(300)
        assert process.exitcode == code
    ended = json.loads(log.read_text().splitlines()[-1])
    assert ended["reason"] == "stopped"
    assert (out / "checkpoints" / f"step-{ended['step']}" / "manifest.json").exists()


def test_f27_second_signal_exits_at_once(monkeypatch):
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    with StopSignals() as stopping:
        assert stopping.exit_code() == 0
        signal.raise_signal(signal.SIGINT)
        assert (stopping.exit_code(), ended) == (130, [])
        signal.raise_signal(signal.SIGINT)
    assert ended == [130]


def unread(words):
    read, write = os.pipe()
    os.close(read)
    sys.stdout = os.fdopen(write, "w")
    forked(words)


def test_run_continues_when_output_is_closed(text, tmp_path, several):
    """`train | head`: the run finishes although its output is no longer read."""
    out = tmp_path / "run"
    words = ["train", "--data", text, "--out", str(out), "--json", *TINY, "--steps", "60"]
    with several.started(1, unread, tmp_path, words) as (process,):
        process.join(300)
        assert process.exitcode == 0, (tmp_path / "rank-0.txt").read_text()
    last = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    assert last == {"event": "end", "step": 60, "reason": "finished", "exit": 0}


def test_preset_sets_defaults():
    read = parse(
        ["gpt2-small", "--train.learning-rate", "3e-4", "--epochs", "2", "--model.layers", "3"]
    )
    assert (read.model.width, read.model.layers) == (768, 3)
    assert (read.train.learning_rate, read.train.epochs, read.train.minutes) == (3e-4, 2.0, None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("gpt2-smal",), "there is no model 'gpt2-smal': did you mean 'gpt2-small'?"),
        (("",), "there is no model ''"),
        (("original", "--data", "imdb"), "imdb has no pairs, but a translator learns from them"),
        (("--lr", "-1"), "learning_rate is -1.0, but it must be above 0"),
        (("--steps", "3", "--minutes", "2"), "the budget is given in steps and minutes"),
        (
            ("--batch-size", "6", "--accumulation-steps", "4"),
            "it must divide the batch of 6: one of 1, 2, 3, 6",
        ),
        (("--data", "no-such-file.txt"), "no-such-file.txt: there is no such file or folder"),
        (("--data", "enwik"), "; did you mean the corpus 'enwik8'?"),
        (("--train.leanr", "3"), "--train.leanr"),
        (("--steps", "1e3"), "--train.steps is '1e3', but it must be a whole number or none"),
        (("--batch-size", "x"), "is 'x', but it must be a whole number"),
        (("--lr", "x"), "is 'x', but it must be a number"),
        (("--save-seconds", "-1"), "save_seconds is -1.0, but it must be at least 0"),
        (
            ("--validation-fraction", "2"),
            "DataConfig: validation_fraction is 2.0, but it must be between",
        ),
        (("--device", "abacus"), "device is 'abacus', which this torch cannot use (Expected"),
        (("--tokenizer", "morse"), "--data.tokenizer"),
    ],
)
def test_rejects_invalid_input(clearformer, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert words in clearformer("train", *arguments).complaint


def test_out_of_memory_suggests_size_that_fits(clearformer, text, tmp_path, monkeypatch):
    """A model that fits only two sequences of the batch of four into memory."""
    from clearformer.core.model import Transformer

    whole = Transformer.loss

    def narrow(self, batch, caches=None):
        if self.training and len(batch.tokens) > narrow.room:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 9 bytes")
        return whole(self, batch, caches)

    monkeypatch.setattr(Transformer, "loss", narrow)
    narrow.room = 2
    train = ("train", "--data", text, "--steps", "1", *TINY)
    complaint = clearformer(*train, "--out", str(tmp_path / "a")).complaint
    assert "with 4 sequences of 16 tokens at a time" in complaint
    assert "use --accumulation-steps 2 (the same gradient; 2 at a time fit)" in complaint
    narrow.room = 0
    complaint = clearformer(*train, "--out", str(tmp_path / "b")).complaint
    assert "use a shorter --length than 16 (not even one sequence fits)" in complaint


def limited(words):
    import resource

    from clearformer.training import memory, microbatch

    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    # Trying out what fits takes half a minute; test_microbatch does it.
    microbatch.fewest_fitting = lambda *rest: 2
    # It is not rejected beforehand, as it would be if the available memory were known.
    memory.available_bytes = lambda: None
    forked(words)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on memory")
def test_out_of_memory_is_one_line(tmp_path, several):
    """A step of 9 GB in a process that may have 4."""
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat. " * 2000)
    words = [
        "train",
        "modern-tiny",
        "--data",
        str(text),
        "--length",
        "4096",
        "--batch-size",
        "4096",
    ]
    words += ["--steps", "1", "--compile", "off", "--threads", "1", "--out", str(tmp_path / "run")]
    with several.started(1, limited, tmp_path, [*words, "--quiet"]) as (process,):
        process.join(300)
        said = (tmp_path / "rank-0.txt").read_text()
        assert process.exitcode == 2, said
    (line,) = [each for each in said.splitlines() if "note:" not in each]
    assert line.startswith("clearformer: out of memory (")
    assert "4096 sequences of 4096 tokens at a time" in line
    assert "--accumulation-steps 2 (the same gradient; 2048 at a time fit)" in line
    assert "--recompute 1" in line


def test_rejects_too_short_text(clearformer, text, tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("short")
    complaint = clearformer("train", "--data", str(path), "--out", str(tmp_path / "r")).complaint
    assert "it has 5 bytes, but" in complaint


def test_generate_rejects_folder_that_is_not_a_run(clearformer, tmp_path):
    assert "is not a run" in clearformer("generate", str(tmp_path), "x").complaint
