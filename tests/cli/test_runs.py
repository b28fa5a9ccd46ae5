"""`clearformer runs` and `compare`, `train --config`, and runs from standard input."""

import io
import json
import sys

TINY = ("--length", "16", "--layers", "1", "--width", "16", "--heads", "2", "--model.hidden", "32",
        "--batch-size", "4", "--threads", "1", "--steps", "4", "--evaluations", "2")  # fmt: skip


def trained(clearformer, data, out, *flags):
    done = clearformer("train", "modern", "--data", str(data), "--out", str(out), *TINY, *flags)
    assert done.code == 0, done.err
    return done


def test_runs_are_listed_and_compared(clearformer, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = tmp_path / "t.txt"
    text.write_text("\n".join(f"{i} green bottles" for i in range(200)))
    first, second = tmp_path / "runs/first", tmp_path / "runs/deep/second"
    trained(clearformer, text, first)
    trained(clearformer, text, second, "--lr", "0.001")
    (tmp_path / "runs/broken").mkdir()
    (tmp_path / "runs/broken/config.json").write_text("{")
    (tmp_path / "runs/broken/metrics.jsonl").write_text("")
    said = clearformer("runs", str(tmp_path / "runs")).out.splitlines()
    assert [line.split()[0] for line in said] == [
        str(tmp_path / "runs" / name) for name in ("broken", "deep/second", "first")
    ]
    assert "cannot be read" in said[0]
    assert "modern-small on t.txt, step 4 (finished)" in said[2]
    rows = map(json.loads, clearformer("runs", str(tmp_path / "runs"), "--json").out.splitlines())
    by_name = {row["run"]: row for row in rows}
    assert by_name[str(first)]["figures"]["loss"] > 0
    found = clearformer("runs", str(tmp_path / "runs"), "--sort", "bits_per_byte").out
    assert found.splitlines()[-1].startswith(str(tmp_path / "runs/broken"))
    said = clearformer("runs", str(tmp_path / "runs"), "--sort", "beauty").complaint
    assert said.startswith("--sort is 'beauty', but the figures are loss")
    said = clearformer("compare", str(first), str(second)).out
    assert "train.learning_rate" in said
    assert "0.001" in said
    assert "model.layers" not in said
    found = json.loads(clearformer("compare", str(first), str(second), "--json").out)
    assert [each["setting"] for each in found["settings"]] == ["train.learning_rate"]
    assert "is not a run" in clearformer("compare", str(first), str(tmp_path)).complaint
    # The config of a run repeats it, bit for bit.
    again = tmp_path / "again"
    done = clearformer("train", "--config", str(first / "config.json"), "--out", str(again))
    assert done.code == 0, done.err

    def losses(folder):
        rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
        return [row["train_loss"] for row in rows if row["event"] == "step"]

    assert losses(again) == losses(first)


def test_what_was_piped_in_is_kept(clearformer, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = "\n".join(f"{i} green bottles" for i in range(200)).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    trained(clearformer, "-", tmp_path / "run")
    assert (tmp_path / "run/data.txt").read_bytes() == text
    done = clearformer("evaluate", str(tmp_path / "run"))
    assert "held back by the run" in done.out, done.err
