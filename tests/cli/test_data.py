"""`clearformer data`: lists corpora and describes sources."""

from clearformer.data import CORPORA


def test_lists_every_corpus(clearformer):
    text = clearformer("data").out
    assert [line.split()[0] for line in text.splitlines()] == list(CORPORA)


def test_shows_offline_corpus(clearformer):
    text = clearformer("data", "python-docs").out
    assert text.startswith("python-docs, train: ")
    assert "sha256" in text


def test_validates_table_and_file(clearformer, tmp_path):
    (tmp_path / "a.csv").write_text("text,label\nfine,yes\npoor,no\ngood,yes\n")
    assert "3 texts; labels: no 1, yes 2" in clearformer("data", str(tmp_path / "a.csv")).out
    (tmp_path / "latin.csv").write_bytes("text,label\ncafé,yes\n".encode("latin-1"))
    assert "byte 14" in clearformer("data", str(tmp_path / "latin.csv")).complaint
    assert "there is no such file" in clearformer("data", str(tmp_path / "none.txt")).complaint


def test_prepare_shows_batch_of_text(clearformer, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "a.txt").write_text("a line of text, and another. " * 200)
    text = clearformer("data", str(tmp_path / "a.txt"), "--prepare", "modern-tiny").out
    assert "tokenizer: bytes, 256 entries" in text
    assert "batch 0, tokens: (8, 256)" in text
    assert "of text, and another" in text.splitlines()[-1]
    assert list((tmp_path / "cache").rglob("*.bin")), "the token file is kept for the run"


def test_prepare_shows_batch_of_table(clearformer, tmp_path):
    rows = "".join(f"film {i} is {'good' if i % 2 else 'bad'},{i % 2}\n" for i in range(100))
    (tmp_path / "a.csv").write_text(f"text,label\n{rows}")
    text = clearformer("data", str(tmp_path / "a.csv"), "--prepare", "classifier-pairs").out
    assert "batch 0, targets: (64,)" in text
    assert "film" in text


def test_shows_and_prepares_pairs(clearformer, tmp_path):
    rows = [f"{i} a" for i in range(100, 160)]
    (tmp_path / "a.csv").write_text("source,target\n" + "".join(f"{r},{r[::-1]}\n" for r in rows))
    (tmp_path / "a.tsv").write_text("".join(f"{r}\t{r[::-1]}\n" for r in rows))
    for name in ("a.csv", "a.tsv"):
        text = clearformer("data", str(tmp_path / name)).out
        assert "60 pairs" in text
        assert "'100 a' -> 'a 001'" in text
    done = clearformer("data", str(tmp_path / "a.csv"), "--prepare", "original-tiny")
    assert done.code == 0, done.err
    assert " a" in done.out.splitlines()[-1]
    (tmp_path / "b.csv").write_text("review,verdict\nfine,yes\n")
    assert "there is no column 'text'" in clearformer("data", str(tmp_path / "b.csv")).complaint
    said = clearformer("data", str(tmp_path / "a.csv"), "--show", "-1").complaint
    assert said == "--show is -1, but it must be at least 0"
