"""`clearformer classify` without a run (with one: test_evaluate.py, which trains it)."""


def test_rejects_folder_that_is_not_a_run(clearformer, tmp_path):
    assert "is not a run" in clearformer("classify", str(tmp_path), "a text").complaint
