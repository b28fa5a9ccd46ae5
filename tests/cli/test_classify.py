"""`clearformer classify` without a run (with one: test_evaluate.py, which trains it)."""


def test_a_run_is_needed(clearformer, tmp_path):
    assert "is not a run" in clearformer("classify", str(tmp_path), "a text").complaint
