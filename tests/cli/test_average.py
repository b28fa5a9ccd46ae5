"""`clearformer average`: the mean of a run's last checkpoints."""


def test_average_then_translate(clearformer, tmp_path, monkeypatch):
    (tmp_path / "a.tsv").write_text("".join(f"{i} a\tb {i}\n" for i in range(100, 160)))
    run = str(tmp_path / "run")
    done = clearformer(
        "train", "original-tiny", "--data", str(tmp_path / "a.tsv"), "--tokenizer", "characters",
        "--layers", "1", "--decoder-layers", "1", "--width", "16", "--heads", "2",
        "--model.hidden", "16", "--length", "16", "--steps", "6", "--evaluations", "3",
        "--keep-checkpoints",
        "3", "--threads", "1", "--out", run,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "its first line is a pair" in done.err
    said = clearformer("average", run, "--last", "3").out
    assert said == f"{run}-average: the mean of the steps 6, 4, 2\n"
    monkeypatch.chdir(run)
    assert clearformer("average", ".", "--last", "2").complaint.startswith(f"{run}-average already")
    assert clearformer("translate", f"{run}-average", "100 a").code == 0
    assert "step 6" in clearformer("evaluate", f"{run}-average").out
    assert "original-tiny" in clearformer("describe", f"{run}-average").out
    complaint = clearformer("average", str(tmp_path / "none")).complaint
    assert complaint == f"{tmp_path / 'none'} is not a run: it has no checkpoints"
    complaint = clearformer("average", run, "--last", "3").complaint
    assert complaint == f"{run}-average already holds a run: choose another --out"
    complaint = clearformer("average", run, "--last", "9", "--out", run + "9").complaint
    assert "has 3 checkpoints, but --last is 9" in complaint
