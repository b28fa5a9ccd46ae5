"""`clearformer train`, `evaluate` and `classify` on the user's own table."""

import csv
import json
import re

import pytest

TINY = ("--length", "16", "--layers", "1", "--width", "16", "--heads", "2", "--model.hidden", "32",
        "--batch-size", "8", "--threads", "1", "--lr", "0.01")  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reviews")
    words = {"good": ("fine", "great", "lovely"), "bad": ("dull", "awful", "poor")}
    rows = [
        (f"a {words[label][i % 3]} film number {i}", label)
        for i in range(90)
        for label in ("good", "bad")
    ]
    with (folder / "reviews.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("review", "verdict"), *rows])
    (folder / "some.txt").write_text("a lovely film\nan awful film\n")
    return folder


@pytest.fixture
def run(folder, clearformer, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    out = folder / "run"
    if not out.exists():
        done = clearformer(
            "train", "classifier", "--data", str(folder / "reviews.csv"), "--data.text-column",
            "review",
            "--data.label-column", "verdict", "--data.vocabulary", "100", "--epochs", "12",
            "--evaluations", "2", "--out", str(out), *TINY,
        )  # fmt: skip
        assert done.code == 0, done.err
        assert "accuracy" in done.out
    return str(out)


def test_evaluate_reports_accuracy_and_calibration(clearformer, run, folder):
    text = clearformer("evaluate", run).out
    accuracy, rows = re.search(r"accuracy +([\d.]+) on (\d+) texts", text).groups()
    assert float(accuracy) == 1.0
    assert int(rows) == 18
    assert "calibration" in text
    assert re.search(r"bad +9 +0", text.split("confusion")[1])
    # By default the columns are those of the training.
    whole = clearformer("evaluate", run, "--data", str(folder / "reviews.csv")).out
    assert "on 180 texts" in whole
    assert "note:" not in text
    assert "held back by the run" in text
    assert (
        "note: this run was trained on 162 of these 180 texts; evaluate its validation "
        "part instead: leave out --data and --part"
    ) in whole.splitlines()
    learned = clearformer("evaluate", run, "--part", "train").out
    assert "on 162 texts" in learned
    assert "note: these figures are of the data that the run was trained on" in learned
    assert "training part of" in learned.split("protocol:")[1]
    assert "accuracy     1.0000" in clearformer("evaluate", run, "--weights", "int8").out


def test_classify_texts_and_files(clearformer, run, folder):
    said = clearformer("classify", run, "a lovely film", "an awful film").out.splitlines()
    assert [line.split()[0] for line in said] == ["good", "bad"]
    assert clearformer("classify", run, "--file", str(folder / "some.txt")).out.splitlines() == said
    out = folder / "out.csv"
    clearformer("classify", run, "--file", str(folder / "reviews.csv"), "--out", str(out))
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 180
    assert list(rows[0]) == ["review", "verdict", "predicted", "probability"]
    assert [row["verdict"] for row in rows] == [row["predicted"] for row in rows]
    with_all = ("--out", str(out), "--probabilities")
    clearformer("classify", run, "--file", str(folder / "reviews.csv"), *with_all)
    with out.open() as file:
        row = next(csv.DictReader(file))
    assert float(row["p(bad)"]) + float(row["p(good)"]) == pytest.approx(1, abs=1e-5)


def test_every_text_is_written_with_what_was_predicted(clearformer, run, folder):
    (folder / "mixed.csv").write_text(
        "id;review;verdict;predicted\n1;a lovely film;GOOD;x\n2;a lovely film;bad;x\n3;;good;x\n"
    )
    out = folder / "errors.csv"
    done = clearformer("evaluate", run, "--data", str(folder / "mixed.csv"), "--out", str(out),
                       "--worst-first")  # fmt: skip
    assert "note: 1 row is without a text and was skipped" in done.out
    assert "separated by semicolons" in done.out
    assert f"2 texts, 1 of them wrong: {out}" in done.out
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ["2", "1"]
    assert rows[0]["predicted (model)"] == "good"
    assert rows[0]["predicted"] == "x"
    assert [row["correct"] for row in rows] == ["False", "True"]
    said = clearformer("evaluate", run, "--worst-first").complaint
    assert said == "--worst-first is about the table of predictions: add --out errors.csv"


def test_figures_as_json_and_thresholds(clearformer, run):
    found = json.loads(clearformer("evaluate", run, "--json", "--precision", "0.9").out)
    assert found["accuracy"] == found["macro_f1"] == 1.0
    assert found["intervals"]["accuracy"] == [1.0, 1.0]
    assert [each["name"] for each in found["classes"]] == ["bad", "good"]
    assert all(each["recall"] == 1.0 for each in found["thresholds"])
    said = clearformer("evaluate", run, "--recall", "0.9").out
    assert "thresholds for a recall 0.9, chosen on these texts:" in said
    said = clearformer("evaluate", run, "--recall", "0.9", "--precision", "0.9").complaint
    assert said == "thresholds are for --precision or for --recall: give one of them"
    assert "--recall is 2.0, but it must be at most 1" in clearformer(
        "evaluate", run, "--recall", "2"
    ).complaint  # fmt: skip


def test_two_runs_are_compared_on_the_same_texts(clearformer, run, folder):
    done = clearformer("evaluate", run, run)
    assert "difference   +0.0000 (second minus first), 95% interval 0.0000 to 0.0000" in done.out
    assert "p value      1.0000 (McNemar's exact test): too small a difference" in done.out
    found = json.loads(clearformer("evaluate", run, run, "--json").out)
    assert found["compared"]["p_value"] == 1.0


def test_unsure_and_empty_texts(clearformer, run, folder):
    (folder / "few.csv").write_text('review\na lovely film\n" "\nan awful film\n')
    out = folder / "few-out.csv"
    done = clearformer("classify", run, "--file", str(folder / "few.csv"), "--out", str(out),
                       "--threshold", "1")  # fmt: skip
    assert "note: 1 of 3 texts are empty and have no prediction" in done.err
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["predicted"] for row in rows] == ["", "", ""]
    assert [bool(row["probability"]) for row in rows] == [True, False, True]
    found = json.loads(clearformer("classify", run, "a lovely film", "--json").out)
    assert found["label"] == "good"
    assert set(found["probabilities"]) == {"bad", "good"}
    said = clearformer("classify", run, "a film", "--threshold", "3").complaint
    assert said == "--threshold is 3, but it must be from 0 to 1"


def test_rejects_invalid_uses(clearformer, run, folder):
    assert clearformer("classify", run).complaint == (
        "there is no text: give texts, name a --file, or pipe texts in"
    )
    complaint = clearformer("generate", run, "x").complaint
    assert "is a classifier: it can classify and embed, not generate" in complaint
    reviews = str(folder / "reviews.csv")
    complaint = clearformer("evaluate", run, "--data", reviews, "--label", "mark").complaint
    assert "review, verdict" in complaint  # the columns there are


def test_rejects_unseen_labels(clearformer, run, folder):
    (folder / "odd.csv").write_text("text,label\na film,good\na film,odd\n")
    columns = ("--text", "text", "--label", "label")
    complaint = clearformer("evaluate", run, "--data", str(folder / "odd.csv"), *columns).complaint
    assert "'odd'" in complaint
    assert "'bad', 'good'" in complaint


def test_skipped_labels_are_reported(clearformer, run, folder):
    (folder / "odd.csv").write_text("text,label\na lovely film,good\na film,odd\n")
    said = clearformer("evaluate", run, "--data", str(folder / "odd.csv"), "--text", "text",
                       "--label", "label", "--unknown-label", "skip").out  # fmt: skip
    assert "note: 1 rows with unknown labels are left out" in said
    assert "accuracy     1.0000 on 1 texts\n" in said
    assert "0.5000 with the 1 left out counted as wrong" in said
    # The recall of a class without texts is undefined, not zero.
    assert re.search(r"bad +0 +0\.0000 +- +-\n", said)


def test_rejects_single_class(clearformer, folder, tmp_path):
    (folder / "one.csv").write_text("text,label\n" + "a film,good\n" * 40)
    complaint = clearformer("train", "classifier", "--data", str(folder / "one.csv"), "--out",
                            str(tmp_path / "x")).complaint  # fmt: skip
    assert "good" in complaint


def test_evaluate_generator_reports_bits(clearformer, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    (tmp_path / "t.txt").write_text("\n".join(f"{i} green bottles" for i in range(300)))
    out = str(tmp_path / "run")
    assert clearformer("train", "generator", "--data", str(tmp_path / "t.txt"), "--out", out,
                       "--steps", "4", "--evaluations", "1", *TINY).code == 0  # fmt: skip
    assert (tmp_path / "run/loss.png").read_bytes().startswith(b"\x89PNG")
    assert "bits per byte" in (tmp_path / "run/README.md").read_text()
    assert '"step": 4' in (tmp_path / "run/samples.jsonl").read_text()
    text = clearformer("evaluate", out, "--context", "16", "--stride", "4").out
    assert "windows of 16 tokens 4 apart" in text
    assert "step 4, weights as trained" in text.splitlines()[0]
    assert "note:" not in text
    copy = tmp_path / "another name.txt"
    copy.write_text((tmp_path / "t.txt").read_text())
    (tmp_path / "t.txt").rename(tmp_path / "gone.txt")
    told = clearformer("evaluate", out, "--data", str(copy)).out
    assert "note: this run was trained on 90 % of this text; evaluate its validation part" in told
    (tmp_path / "gone.txt").rename(tmp_path / "t.txt")
    cut = clearformer("evaluate", out, "--max-bytes", "300").out
    assert re.search(r"note: the first 300 of \d+ bytes are scored: see --max-bytes", cut)
    learned = clearformer("evaluate", out, "--part", "train").out
    assert "note: these figures are of the data that the run was trained on" in learned
    assert "xz -9e" in text
    bits = float(re.search(r"bits per byte +([\d.]+)", text)[1])
    assert bits == pytest.approx(
        float(re.search(r"bits per character +([\d.]+)", text)[1]), rel=1e-3
    )
    text = clearformer("evaluate", out, "--stride", "4", "--weights", "int8").out
    before = float(re.search(r"in float32 +([\d.]+)", text)[1])
    cost = float(re.search(r"quantizing costs +([+-][\d.]+)", text)[1])
    after = float(re.search(r"bits per byte +([\d.]+)", text.split("quantizing costs")[1])[1])
    assert after == pytest.approx(before + cost, abs=2e-4)
    assert abs(cost) < 0.05
    # The same as an exported run, compared with its original.
    small = str(tmp_path / "int8")
    assert clearformer("export", out, "--to", "int8", "--out", small).code == 0
    again = clearformer("evaluate", small, "--stride", "4").out
    assert again.split("in float32")[1] == text.split("in float32")[1]
    assert clearformer("generate", small, "10 green", "--max-tokens", "5").code == 0
    wrong = clearformer("evaluate", out, "--against", small).complaint
    assert wrong == f"--against is {small}, but {out} is not a run in int8: leave it out"
    wrong = clearformer("export", small, "--out", str(tmp_path / "x")).complaint
    assert "has int8 weights, which are for inference only" in wrong


def test_evaluate_transformer_xl_with_any_memory(clearformer, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    (tmp_path / "t.txt").write_text("\n".join(f"{i} green bottles" for i in range(300)))
    text, out = str(tmp_path / "t.txt"), str(tmp_path / "run")
    train = ("train", "xl-tiny", "--data", text, "--steps", "3", "--evaluations", "1",
             "--model.cache.length", "24", *TINY)  # fmt: skip
    assert clearformer(*train, "--out", out).code == 0
    found = clearformer("evaluate", out, "--memory", "64", "--max-bytes", "500").out
    assert "segments of 16 tokens with a memory of 64" in found
    assert "with a memory of 24" in clearformer("evaluate", out, "--max-bytes", "500").out
    assert len(clearformer("generate", out, "9 green", "--max-tokens", "60").out) >= 40
    assert clearformer("evaluate", out, "--memory", "-1").complaint == (
        "--memory is -1, but it must be at least 0"
    )
    assert "this model reads consecutive segments: use --memory" in clearformer(
        "evaluate", out, "--stride", "4"
    ).complaint  # fmt: skip
    long = clearformer(*train[:-2], "--length", "1024", "--out", str(tmp_path / "x")).complaint
    assert "8 streams of segments of 1024 need 8,193: give a longer text" in long


def test_memory_flag_only_for_transformer_xl(clearformer, run, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    (tmp_path / "t.txt").write_text("\n".join(f"{i} green bottles" for i in range(300)))
    out = str(tmp_path / "run")
    clearformer("train", "sparse-small", "--data", str(tmp_path / "t.txt"), "--out", out,
                "--steps", "2", "--evaluations", "1", *TINY)  # fmt: skip
    assert "sparse-small has no memory: leave it out, or train a Transformer-XL" in clearformer(
        "evaluate", out, "--memory", "64"
    ).complaint  # fmt: skip


def test_rejects_unknown_part_and_reports_training_data(clearformer, run, folder, tmp_path):
    """A part that the user's file does not have must not silently mean the whole file."""
    said = clearformer("evaluate", run, "--part", "test").complaint
    assert said == (
        f"--part is test, but {folder / 'reviews.csv'} is not a corpus and has only the parts "
        "validation and train of the run: choose one of them, or give other --data"
    )
    said = clearformer("evaluate", run, "--out", str(tmp_path / "x.txt")).complaint
    assert said == f"{tmp_path / 'x.txt'} must end in .csv, .tsv, .jsonl or .json"
    said = clearformer("evaluate", run, "--out", str(tmp_path / "no/x.txt")).complaint
    assert said.endswith(f"there is no folder {tmp_path / 'no'}, make it")


def test_int8_evaluation_shows_float32_result(clearformer, run):
    text = clearformer("evaluate", run, "--weights", "int8").out
    assert re.search(r"^in float32 +1\.0000, loss [\d.]+$", text, re.MULTILINE)


def test_each_line_is_one_text(clearformer, run, tmp_path):
    """Row i of the output is line i of the file, whatever other line separators it has."""
    file = tmp_path / "lines.txt"
    file.write_bytes("a lovely\x85film\r\nan awful\x0cfilm\n\n".encode())
    said = clearformer("classify", run, "--file", str(file)).out.splitlines()
    assert [line.split()[0] for line in said] == ["good", "bad"]
    file.write_text("a lovely film\n \nan awful film\n")
    said = clearformer("classify", run, "--file", str(file)).complaint
    assert said == f"{file}, line 2 is empty, but every line must be a text"


def test_does_not_overwrite_input_with_output(clearformer, run, tmp_path):
    table = tmp_path / "mine.csv"
    table.write_text("review,verdict\na lovely film,mine\n")
    said = clearformer("classify", run, "--file", str(table), "--out", str(table)).complaint
    assert said == f"--out {table} would write over --file: choose another"
    assert "mine" in table.read_text()
    said = clearformer("classify", run, "a film", "--out", str(tmp_path / "no/x.csv")).complaint
    assert said.endswith(f"there is no folder {tmp_path / 'no'}, make it")
    said = clearformer("classify", run, "a film", "--out", str(tmp_path)).complaint
    assert said == f"{tmp_path} cannot be written: it is a folder"
