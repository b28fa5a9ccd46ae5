"""`clearformer data`: what there is, and what a source looks like."""

from clearformer.data import CORPORA


def test_every_corpus_is_listed(clearformer):
    text = clearformer("data").out
    assert [line.split()[0] for line in text.splitlines()] == list(CORPORA)


def test_a_corpus_of_every_machine_is_shown(clearformer):
    text = clearformer("data", "python-docs").out
    assert text.startswith("python-docs, train: ")
    assert "sha256" in text


def test_a_table_and_a_file_are_checked(clearformer, tmp_path):
    (tmp_path / "a.csv").write_text("text,label\nfine,yes\npoor,no\ngood,yes\n")
    assert "3 texts; labels: no 1, yes 2" in clearformer("data", str(tmp_path / "a.csv")).out
    (tmp_path / "latin.csv").write_bytes("text,label\ncafé,yes\n".encode("latin-1"))
    assert "byte 14" in clearformer("data", str(tmp_path / "latin.csv")).complaint
    assert "there is no such file" in clearformer("data", str(tmp_path / "none.txt")).complaint


def test_data_is_prepared_as_training_would_and_a_batch_shown(clearformer, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "a.txt").write_text("a line of text, and another. " * 200)
    text = clearformer("data", str(tmp_path / "a.txt"), "--prepare", "modern-tiny").out
    assert "tokenizer: bytes, 256 entries" in text
    assert "batch 0, tokens: (8, 256)" in text
    assert "of text, and another" in text.splitlines()[-1]
    assert list((tmp_path / "cache").rglob("*.bin")), "the token file is kept for the run"


def test_a_table_is_prepared_with_its_labels(clearformer, tmp_path):
    rows = "".join(f"film {i} is {'good' if i % 2 else 'bad'},{i % 2}\n" for i in range(100))
    (tmp_path / "a.csv").write_text(f"text,label\n{rows}")
    text = clearformer("data", str(tmp_path / "a.csv"), "--prepare", "classifier-pairs").out
    assert "batch 0, targets: (64,)" in text
    assert "film" in text
