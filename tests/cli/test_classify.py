"""`clearformer classify` without a run, and of pairs (with a run: test_evaluate.py)."""

import clearformer as cf


def test_rejects_folder_that_is_not_a_run(clearformer, tmp_path):
    assert "is not a run" in clearformer("classify", str(tmp_path), "a text").complaint


def test_classify_pairs_prints_and_writes_file(tuned, clearformer, tuning_folder, tmp_path):
    run = tuned("classify-pairs")
    found = cf.load(run).classify(("mary 1", "rome"))
    shown = clearformer("classify", run, "mary 1", "--second", "rome").out
    assert shown.startswith(f"{found.label}  (")
    out = tmp_path / "a.csv"
    done = clearformer(
        "classify", run, "--file", str(tuning_folder / "pairs.csv"), "--out", str(out)
    )
    assert done.out == f"20 texts: {out}\n"
    assert out.read_text().splitlines()[0] == "a,b,c,predicted,probability"


def test_rejects_single_text_of_pair(tuned, clearformer):
    complaint = clearformer("classify", tuned("classify-pairs"), "mary").complaint
    wanted = "a pair is one text and --second, its second text; a table of pairs is a --file"
    assert complaint == wanted
