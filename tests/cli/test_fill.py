"""`clearformer fill`, and fine-tuning a classifier from a masked model."""

import json
import re
import shutil
from pathlib import Path

import pytest

TINY = ("--length", "24", "--layers", "1", "--width", "16", "--heads", "2", "--model.hidden", "32",
        "--data.vocabulary", "80", "--batch-size", "8", "--threads", "1", "--lr",
        "0.01")  # fmt: skip
FEW = ("--steps", "4", "--evaluations", "1", "--threads", "1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("masked")
    words = ("lovely", "dull", "long")
    lines = [f"a {words[i % 3]} film. it was number {i % 10}.\n" for i in range(200)]
    (folder / "text.txt").write_text("".join(lines))
    rows = [
        f"a {w} film,{v}\n" for _ in range(20) for w, v in (("lovely", "good"), ("dull", "bad"))
    ]
    rows = [f"{i} {row}" for i, row in enumerate(rows)]
    (folder / "reviews.csv").write_text("text,label\n" + "".join(rows))
    return folder


@pytest.fixture
def run(folder, clearformer, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    out = folder / "bert"
    if not out.exists():
        done = clearformer(
            "train", "bert-tiny", "--data", str(folder / "text.txt"), "--steps", "60",
            "--evaluations", "2", "--unit", "words", "--out", str(out), *TINY,
        )  # fmt: skip
        assert done.code == 0, done.err
        assert "masked loss" in done.out
        assert "next sentence accuracy" in done.out
        assert "predicting masked tokens by their frequency alone" in done.err
    return str(out)


def test_fill_prints_candidates(clearformer, run):
    done = clearformer("fill", run, "a [MASK] film. it was [MASK] 3.", "--top-k", "2")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert [lines[0], lines[3]] == ["[MASK] 1", "[MASK] 2"]
    assert all(re.fullmatch(r" 0\.\d{4}  \S+", lines[i]) for i in (1, 2, 4, 5))
    assert "[MASK]" not in clearformer("fill", run, "a [MASK] film").out
    assert "no [MASK] to fill" in clearformer("fill", run, "a film").complaint
    assert f'clearformer fill {run} "A [MASK] text"' in Path(run, "README.md").read_text()


def test_evaluate_masked_model(clearformer, run, folder):
    said = clearformer("evaluate", run).out
    assert re.search(r"masked accuracy +0\.\d+", said)
    assert "by words" in said
    assert re.search(r"protocol: [\d,]+ masked tokens in \d+ rows of up to 24 tokens", said)
    trained = json.loads((folder / "bert/config.json").read_text())
    assert trained["data"]["masking"]["unit"] == "words"
    eight = clearformer("evaluate", run, "--weights", "int8").out
    floats = re.search(r"^masked loss, in float32 +([\d.]+)$", eight, re.MULTILINE)
    assert f"masked loss             {floats[1]}" in said, "what it was, beside what it is"
    assert said not in eight
    own = clearformer("evaluate", run, "--data", str(folder / "reviews.csv"))
    assert own.code == 0, own.err
    assert "reviews.csv" in own.out
    assert "note:" not in own.out
    same = clearformer("evaluate", run, "--data", str(folder / "text.txt")).out
    assert "note: this run was trained on about all of this text" in same
    own = clearformer(
        "evaluate", run, "--data", "python-docs", "--part", "train", "--max-bytes", "999"
    )
    assert own.out.endswith("the same at every evaluation; python-docs\n")
    complaint = clearformer("evaluate", run, "--data", "multi30k").complaint
    assert "multi30k consists of pairs, but a masked model reads single texts" in complaint


def test_classifier_from_masked_model(clearformer, run, folder, tmp_path):
    source, out = tmp_path / "source", str(tmp_path / "out")
    shutil.copytree(run, source)
    words = ("train", "classify", "--from", str(source), "--data", str(folder / "reviews.csv"),
             "--out", out)  # fmt: skip
    done = clearformer(*words, *FEW)
    assert done.code == 0, done.err
    saved = json.loads((tmp_path / "out/config.json").read_text())
    assert saved["model"]["head"]["pool"] == "pooler"
    assert saved["data"]["tokenizer"] == "wordpiece"
    assert saved["data"]["masking"] is None
    assert saved["origin"]["folder"] == str(source)
    assert str(source) in (tmp_path / "out/README.md").read_text()
    assert clearformer("classify", out, "a lovely film").out.split()[0] in ("good", "bad")
    assert "it can classify and embed, not fill" in clearformer("fill", out, "a [MASK]").complaint

    # The run resumes without its origin, with the same or with fewer arguments.
    shutil.rmtree(source)
    longer = ("--steps", "6", "--evaluations", "1", "--threads", "1", "--resume")
    assert "finished at step 6" in clearformer(*words, *longer).out
    fewer = clearformer("train", "--out", out, "--steps", "7", "--resume")
    assert "finished at step 7" in fewer.out, fewer.err
    assert "is not a run" in clearformer(*words[:-1], str(tmp_path / "new"), *FEW).complaint


def test_pool_freeze_and_length_flags(clearformer, run, folder, tmp_path):
    out = tmp_path / "out"
    done = clearformer(
        "train", "classify", f"--from={run}", "--data", str(folder / "reviews.csv"), "--pool",
        "first", "--freeze", "body", "--length", "16", "--out", str(out), *FEW,
    )  # fmt: skip
    assert done.code == 0, done.err
    saved = json.loads((out / "config.json").read_text())
    assert (saved["model"]["head"]["pool"], saved["model"]["length"]) == ("first", 16)
    assert saved["train"]["freeze"] == "body"


def test_continued_pretraining_on_other_text(clearformer, run, folder, tmp_path):
    done = clearformer("train", "--from", run, "--data", str(folder / "reviews.csv"), "--out",
                       str(tmp_path / "out"), *FEW)  # fmt: skip
    assert done.code == 0, done.err
    assert "masked loss" in done.out


def test_continued_training_keeps_byte_pairs(clearformer, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    small = ("--length", "16", "--layers", "1", "--width", "16", "--heads", "2", "--model.hidden",
             "32")  # fmt: skip
    done = clearformer("train", "gpt2-small", "--data", str(folder / "text.txt"), "--out", first,
                       *small, *FEW)  # fmt: skip
    assert done.code == 0, done.err
    assert re.search(r"the bpe vocabulary has [\d,]+ tokens, chosen for a text of", done.err)
    said = clearformer("evaluate", first, "--stride", "4").out
    loss, perplexity = (
        float(re.search(rf"{name} +([\d.]+)", said)[1]) for name in ("loss per token", "perplexity")
    )
    assert perplexity == pytest.approx(2.718281828**loss, rel=1e-3)
    assert "per token, stride 4" in said
    done = clearformer("train", "--from", f"{first}/checkpoints/step-4", "--data",
                       str(folder / "reviews.csv"), "--out", second, *FEW)  # fmt: skip
    assert done.code == 0, done.err
    assert json.loads((tmp_path / "second/config.json").read_text())["data"]["tokenizer"] == "bpe"
    done = clearformer("train", "classify", "--from", first, "--pool", "first", "--data",
                       str(folder / "reviews.csv"), "--out", str(tmp_path / "x"))  # fmt: skip
    assert "attends to no other (causal attention): choose mean or max" in done.complaint


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--model.layers", "3"), "model.layers is 3, but"),
        (("--model.hidden", "64"), "model.hidden is 64, but"),
        (("--length", "100"), "has learned 24 positions: choose at most that"),
        (("--data.tokenizer", "bytes"), "comes with its tokenizer, wordpiece with"),
        (("--data.vocabulary", "99"), "comes with its tokenizer, wordpiece with"),
    ],
)
def test_rejects_settings_that_do_not_fit(clearformer, run, folder, tmp_path, more, words):
    complaint = clearformer("train", "classify", "--from", run, "--data",
                            str(folder / "reviews.csv"), "--out", str(tmp_path / "x"), *more,
                            ).complaint  # fmt: skip
    assert words in complaint
    assert not (tmp_path / "x").exists()


def test_rejects_contradicting_arguments(clearformer, run, tmp_path):
    complaint = clearformer("train", "gpt2-small", "--from", run).complaint
    assert complaint == (
        f"with --from the model is that of {run}: leave out 'gpt2-small', or use classify, "
        "multi-label, regression, classify-pairs, label, answer or chat"
    )
    complaint = clearformer("train", "classify", "--data", "imdb").complaint
    assert complaint == "classify gives a trained model a new head: add --from RUN"
    complaint = clearformer("train", "classify", "--from", str(tmp_path / "none")).complaint
    assert "is not a run" in complaint
    (tmp_path / "config.json").write_text("{")
    complaint = clearformer("train", "--out", str(tmp_path), "--resume").complaint
    assert complaint.startswith(f"{tmp_path}/config.json is not valid JSON: ")
