"""The report of `clearformer plan`: lengths, GPUs, long times."""

import re

import pytest

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


def test_texts_are_timed_at_their_length(clearformer, tmp_path):
    """Rows are padded to the longest of their batch, not to the model's length."""
    table = tmp_path / "table.csv"
    rows = [f"{['good', 'bad'][n % 2]} thing{n},{n % 2}" for n in range(100)]
    table.write_text("\n".join(["text,label", *rows]))
    words = (
        "plan",
        "classifier-imdb",
        *TINY[:6],
        "--heads",
        "2",
        "--length",
        "32",
        "--batch-size",
        "8",
    )
    found = clearformer(*words, "--data", str(table), "--steps", "3")
    assert found.code == 0, found.err
    assert "GFLOP, 16 tokens," in found.out  # 8 rows of 2
    other = clearformer(*words, "--data", str(tmp_path / "none.csv"), "--steps", "3")
    assert "GFLOP, 256 tokens," in other.out  # 8 rows of 32: nothing else is known
    assert "note: times are for texts of 32 tokens: " in other.out


def test_pairs_are_planned_at_their_length(clearformer, tmp_path):
    small = (
        "--layers 1 --width 16 --heads 2 --hidden 32 --batch-size 8 --steps 4 --precision float32"
    )
    known = clearformer("plan", "original-tiny", *small.split())
    tokens = int(re.search(r"([\d,]+) tokens, ", known.out)[1])
    assert 8 * 5 < tokens < 8 * 20  # numbers in words
    assert "8 at a time" in known.out
    absent = str(tmp_path / "absent.tsv")
    assumed = clearformer("plan", "original-tiny", *small.split(), "--data", absent)
    assert "256 tokens" in assumed.out
    assert "note: pairs of 32 and 32 tokens are assumed: " in assumed.out


def test_accepts_long_budgets(clearformer, tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat on the mat. " * 200)
    words = ("plan", "modern-tiny", *TINY, "--data", str(tmp_path / "text.txt"))
    for budget in ("--minutes", "--epochs", "--steps"):
        found = clearformer(*words, budget, "1000000000")
        assert found.code == 0, found.err
        assert "steps, " in found.out


def test_cluster_estimate(clearformer):
    found = clearformer("plan", "gpt2-small", "--layers", "2", "--gpus", "8", "--tokens", "1e9")
    assert found.code == 0, found.err
    assert "1e+09 tokens" in found.out
    assert "assumed: 80.0 GB and 312 TFLOP/s each, of which training reaches 40%" in found.out
    assert "replicas (ddp)" in found.out
    assert "sharded (fsdp2)" in found.out
    assert "limits:" in found.out
    small = clearformer("plan", "gpt2-small", "--layers", "2", "--gpus", "8", "--gpu-memory", "1GB")
    assert "does not fit on 8 GPUs of 1.0 GB" in small.complaint
