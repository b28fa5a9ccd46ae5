"""`clearformer compare` without runs (with two: test_runs.py, which trains them)."""


def test_both_must_be_runs(clearformer, tmp_path):
    assert clearformer("compare", str(tmp_path), str(tmp_path)).complaint == (
        f"{tmp_path} is not a run: it has no config.json"
    )
    assert "compare needs SECOND" in clearformer("compare", "a").complaint
