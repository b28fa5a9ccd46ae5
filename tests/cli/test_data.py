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
