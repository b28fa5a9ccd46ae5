"""`clearformer train original`, `translate`, `evaluate` and `average` on the user's own pairs."""

import io
import itertools
import re
import sys

import pytest

TINY = ("--length", "24", "--layers", "1", "--decoder-layers", "1", "--width", "32", "--heads", "2",
        "--model.hidden", "64", "--model.dropout.residual", "0", "--model.dropout.embedding", "0",
        "--threads", "1", "--lr", "0.01", "--train.schedule.warmup", "10", "--tokens",
        "600")  # fmt: skip
WORDS = {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fuenf"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    rows = [row for size in (1, 2, 3) for row in itertools.product(WORDS, repeat=size)]
    (folder / "train.en").write_text("".join(" ".join(row) + "\n" for row in rows))
    (folder / "train.de").write_text(
        "".join(" ".join(WORDS[word] for word in row) + "\n" for row in rows)
    )
    return folder


@pytest.fixture
def run(folder, clearformer):
    out = folder / "run"
    if not out.exists():
        done = clearformer(
            "train", "original-tiny", "--data", f"{folder / 'train.en'},{folder / 'train.de'}",
            "--tokenizer", "words", "--data.vocabulary", "20", "--steps", "150", "--evaluations",
            "3", "--keep-checkpoints", "3", "--out", str(out), *TINY,
        )  # fmt: skip
        assert done.code == 0, done.err
        assert "chrf" in done.out
        assert " -> " in done.out
    return str(out)


def test_training_writes_card_and_samples(run, folder):
    card = (folder / "run/README.md").read_text()
    assert f'clearformer translate {run} "a text"' in card
    assert " -> " in (folder / "run/samples.jsonl").read_text()


def test_translates_texts(clearformer, run):
    assert clearformer("translate", run, "two three one").out == "zwei drei eins\n"
    assert clearformer("translate", run, "two", "five four").out == "zwei\nfuenf vier\n"
    assert clearformer("translate", run, "five four", "--beam", "1").out == "fuenf vier\n"


def test_best_prints_scores(clearformer, run):
    lines = clearformer("translate", run, "two three", "--best", "3").out.splitlines()
    scores = [float(line.split()[0]) for line in lines]
    assert len(lines) == 3
    assert scores == sorted(scores, reverse=True)
    assert lines[0].split()[1:] == ["zwei", "drei"]


def test_translates_file_line_by_line(clearformer, run, folder, monkeypatch):
    path = folder / "in.txt"
    path.write_text("one\n\n two three \r\nfour")
    expected = ["eins", "", "zwei drei", "vier"]
    for batch in ("1", "2", "32"):
        out = clearformer("translate", run, "--file", str(path), "--batch-size", batch).out
        assert out.splitlines() == expected
    marked = b"\xef\xbb\xbf" + path.read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(marked)))
    assert clearformer("translate", run, "--file", "-").out.splitlines() == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\ntw\xe9\n")))
    done = clearformer("translate", run, "--file", "-")
    assert done.out == "eins\n"
    assert done.complaint.startswith("standard input, line 2: byte 2 is 0xE9, which is not UTF-8")


def test_writes_alignment_picture(clearformer, run, tmp_path):
    path = tmp_path / "a.png"
    done = clearformer("translate", run, "two three", "--picture", str(path))
    assert done.out == "zwei drei\n"
    assert path.read_bytes().startswith(b"\x89PNG")
    complaint = clearformer("translate", run, "a", "b", "--picture", str(path)).complaint
    assert complaint == "a picture shows one text, but there are 2"
    complaint = clearformer("translate", run, "a", "--picture", str(path), "--layer", "7").complaint
    assert "layer is 7" in complaint


def test_hints_at_reversed_direction(clearformer, run):
    done = clearformer("translate", run, "zwei drei vier")
    assert done.code == 0
    assert done.err.count("\n") == 1
    assert "is it the wrong way round?" in done.err
    assert clearformer("translate", run, "two three four").err == ""


def test_evaluate_prints_metrics_with_protocol(clearformer, run, folder, tmp_path):
    text = clearformer("evaluate", run).out
    assert re.search(r"BLEU +[\d.]+   nrefs:1\|case:mixed", text)
    assert re.search(r"chrF +100.00   nrefs:1", text)
    assert re.search(r"exact match +1.0000 on 1[56] pairs", text)
    assert re.search(r"loss +0\.\d+ nats per target token, end mark included, not smoothed", text)
    assert "protocol: beam 4, length penalty 1" in text
    (tmp_path / "t.tsv").write_text("en\tde\none two\teins zwei\nfour\tvier\n\tx\n")
    out = tmp_path / "out.txt"
    text = clearformer("evaluate", run, "--data", str(tmp_path / "t.tsv"), "--source-column", "en",
                       "--target-column", "de", "--beam", "1", "--out", str(out)).out  # fmt: skip
    assert "on 2 pairs" in text
    assert "note: 1 of 3 pairs have an empty side" in text
    assert out.read_text() == "eins zwei\nvier\n"


def test_rejects_invalid_uses(clearformer, run, folder, tmp_path):
    complain = lambda *words: clearformer(*words).complaint  # noqa: E731
    assert complain("translate", run).startswith("there is no text: give texts, name a --file")
    assert complain("translate", run, "a", "--file", "b").startswith("give either texts or --file")
    beam = complain("translate", run, "a", "--beam", "0")
    assert beam == "--beam is 0, but it must be at least 1"
    assert "use a wider beam" in complain("translate", run, "a", "--best", "9")
    assert "--batch-size is 0" in complain("translate", run, "a", "--batch-size", "0")
    assert "--beam is 0" in complain("evaluate", run, "--beam", "0")
    assert "--part is test, but" in complain("evaluate", run, "--part", "test")
    eight = complain("evaluate", run, "--weights", "int8")
    assert eight == "--weights is for models of one stack: leave it out"
    long = complain("translate", run, "one " * 40)
    assert "has 41 tokens, but original-tiny reads at most 24: cut it into sentences" in long
    (tmp_path / "long.txt").write_text("one\n" + "one " * 40)
    in_file = complain("translate", run, "--file", str(tmp_path / "long.txt"))
    assert "long.txt, lines 1 to 2: text 2" in in_file
    assert "is a translator: it can translate, not generate" in complain("generate", run, "a")
    assert "is a translator: it can translate, not classify" in complain("classify", run, "a")
    (tmp_path / "b.de").write_text("eins\n")
    files = f"{folder / 'train.en'},{tmp_path / 'b.de'}"
    assert "has 155 lines and" in complain("train", "original-tiny", "--data", files)
    assert "has 155 lines and" in complain("evaluate", run, "--data", files)


def test_resume_continues_run(clearformer, folder, tmp_path):
    words = ("train", "original-tiny", "--data", f"{folder / 'train.en'},{folder / 'train.de'}",
             "--tokenizer", "words", "--data.vocabulary", "20", "--evaluations", "1",
             *TINY)  # fmt: skip
    whole, parts = str(tmp_path / "whole"), str(tmp_path / "parts")
    assert clearformer(*words, "--steps", "6", "--out", whole).code == 0
    assert clearformer(*words, "--steps", "3", "--out", parts).code == 0
    assert clearformer(*words, "--steps", "6", "--out", parts, "--resume").code == 0
    name = "checkpoints/step-6/model.safetensors"
    assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()


def test_data_shows_pairs(clearformer, folder):
    text = clearformer("data", f"{folder / 'train.en'},{folder / 'train.de'}").out
    assert "155 pairs" in text
    assert "'one' -> 'eins'" in text


def test_samples_have_one_meaning(clearformer, run):
    asked = ("translate", run, "two three one", "--temperature", "0.5", "--best", "3")
    first, again = clearformer(*asked), clearformer(*asked)
    assert first.out == again.out
    assert [line.split()[1:] for line in first.out.splitlines()] == [["zwei", "drei", "eins"]] * 3


def test_sampling_does_not_go_with_a_beam(clearformer, run):
    done = clearformer("translate", run, "two", "--temperature", "1", "--beam", "4")
    assert done.code == 2
    assert "--beam is that of a beam, which does not go with --temperature" in done.err
    assert clearformer("translate", run, "two", "--top-p", "1.5").code == 2
    assert clearformer("translate", run, "two", "--temperature", "-1").code == 2
