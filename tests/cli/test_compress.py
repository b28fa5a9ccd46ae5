"""`clearformer compress` and `decompress`, and `evaluate --prove`."""

import json
import re

import pytest

from clearformer.cli.compress import progress_bar
from clearformer.compressor import curve


@pytest.fixture
def bottles(tmp_path):
    path = tmp_path / "more.txt"
    path.write_bytes(b"7 green bottles\n\xff" * 20)
    return path


def test_compress_decompress_round_trip(clearformer, run, bottles):
    done = clearformer("compress", str(bottles), "--model", run, "--streams", "4")
    assert done.code == 0, done.err
    packed = bottles.with_name("more.txt.cf")
    assert f"{packed}: {packed.stat().st_size:,} bytes" in done.out
    assert "4 streams" in done.out
    assert "with weights in int8" in done.out
    assert "xz -9e" in done.out
    data = bottles.read_bytes()
    bottles.unlink()
    done = clearformer("decompress", str(packed))
    assert done.code == 0, done.err
    assert done.out.startswith(f"{bottles}: {len(data):,} bytes, the hash is right; ")
    assert bottles.read_bytes() == data


def test_from_scratch_ships_no_weights(clearformer, tmp_path):
    (tmp_path / "a").write_bytes(b"to be or not to be, " * 4)
    out = str(tmp_path / "x")
    done = clearformer(
        "compress", str(tmp_path / "a"), "--model", "modern-tiny", "--from-scratch", "--online",
        "--learning-rate", "1e-3", "--context", "16", "--out", out,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "no weights are shipped" in done.out
    done = clearformer("decompress", out, "--out", str(tmp_path / "b"))
    assert done.code == 0, done.err
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()


def test_evaluate_prove_confirms_bits(clearformer, run, bottles):
    done = clearformer("evaluate", run, "--data", str(bottles), "--prove", "--weights", "int8")
    assert done.code == 0, done.err
    assert "the model claims" in done.out
    assert done.out.endswith("the same: proven\n")


def test_evaluate_dynamic(clearformer, run, bottles, monkeypatch):
    done = clearformer("evaluate", run, "--data", str(bottles), "--dynamic")
    assert done.code == 0, done.err
    assert done.out.endswith("streams, learning online\n")
    monkeypatch.setattr(curve, "STEP", 100)
    done = clearformer("evaluate", run, "--data", str(bottles), "--dynamic", "--prove")
    assert done.code == 0, done.err
    assert re.search(r"\n +0 to +1\d\d bytes: \d\.\d{4} bits\n", done.out)
    assert done.out.endswith("the same: proven\n")


def test_evaluate_json_has_the_proof(clearformer, run, bottles, monkeypatch):
    """One line, whatever is measured."""
    command = ("evaluate", run, "--data", str(bottles), "--json")
    found = json.loads(clearformer(*command, "--prove").out)
    code = found["code"]
    assert code["claimed_bits_per_byte"] == pytest.approx(code["code_bits_per_byte"], rel=0.1)
    assert code["file_bits_per_byte"] == 8 * code["file_bytes"] / bottles.stat().st_size
    assert "curve" not in code
    monkeypatch.setattr(curve, "STEP", 100)
    learned = json.loads(clearformer(*command, "--dynamic").out)["code"]
    assert learned["claimed_bits_per_byte"] < code["claimed_bits_per_byte"]
    assert [place // 100 for place, _ in learned["curve"]] == [1, 2, 3]
    assert learned["curve"][-1][1] <= 8 * 340 * learned["claimed_bits_per_byte"] + 1e-6


def test_json_has_the_sizes_of_the_report(clearformer, run, bottles):
    done = clearformer("compress", str(bottles), "--model", run, "--json")
    found, size = json.loads(done.out), bottles.with_name("more.txt.cf").stat().st_size
    assert found["compressed"] == found["sizes"]["compressed file"] == size
    assert found["sizes"]["xz -9e"] > 0
    assert found["sizes"]["with weights"] > found["sizes"]["with weights in int8"] > size


def test_errors_are_one_line_and_write_nothing(clearformer, run, bottles):
    before = sorted(bottles.parent.iterdir())
    missing = clearformer("compress", str(bottles.with_name("no")), "--model", run).complaint
    assert missing.endswith("no: there is no such file or folder: check the path")
    there = clearformer("compress", str(bottles), "--model", run, "--out", str(bottles)).complaint
    assert "would write over" in there
    wrong = clearformer("compress", str(bottles), "--model", run, "--streams", "0").complaint
    assert wrong == "--streams is 0, but it must be from 1 to 4,096"
    wrong = clearformer("compress", str(bottles), "--model", "modern-tiny", "--from-scratch")
    assert wrong.complaint == "--from-scratch needs --online: untrained weights predict nothing"
    wrong = clearformer("compress", str(bottles), "--model", run, "--learning-rate", "0.1")
    assert wrong.complaint == "--learning-rate is for --online: leave it out, or add --online"
    wrong = clearformer("compress", str(bottles), "--model", run, "--seed", "4")
    assert wrong.complaint.startswith("--seed is for initial weights: leave it out, or add --from")
    ending = clearformer("decompress", str(bottles)).complaint
    assert ending.endswith("more.txt does not end in .cf: say where to write, --out")
    out = str(bottles.with_name("out"))
    foreign = clearformer("decompress", str(bottles), "--out", out).complaint
    assert "is not a file of clearformer compress" in foreign
    assert sorted(bottles.parent.iterdir()) == before


def test_does_not_overwrite_existing_file(clearformer, run, bottles):
    bottles.with_name("more.txt.cf").write_text("mine")
    done = clearformer("compress", str(bottles), "--model", run)
    assert done.complaint.endswith("already exists: delete it, or choose another file with --out")
    assert bottles.with_name("more.txt.cf").read_text() == "mine"


def test_progress_bar_only_in_terminal(monkeypatch, capsys):
    with progress_bar("compressing") as progress:
        assert progress is None
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with progress_bar("compressing") as progress:
        progress(5, 10)
    assert "50%" in capsys.readouterr().out
