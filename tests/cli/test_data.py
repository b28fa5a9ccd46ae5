"""`clearformer data`: lists corpora and describes sources."""

import json

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
    said = clearformer("data", str(tmp_path / "latin.csv")).out
    assert "(byte 14 is 0xE9, which is not UTF-8 there) and was read as Windows-1252" in said
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


def test_a_profile_of_a_messy_table(clearformer, tmp_path):
    rows = [f"{i};ticket number {i} about {'money' if i % 3 else 'login'} {'x ' * (i % 40)};"
            f"{'Billing' if i % 3 else 'login'}" for i in range(90)]  # fmt: skip
    rows += ["90;Ticket NUMBER 1 about money!;billing ", "91;;login", "92;no label;", "93;one;odd"]
    (tmp_path / "a.csv").write_text("id;message;topic\n" + "\n".join(rows))
    asked = ("data", str(tmp_path / "a.csv"), "--text", "message", "--label", "topic")
    said = clearformer(*asked, "--length", "20").out
    assert "94 rows, 3 columns" in said
    assert "message  93 filled" in said
    assert "92 texts; labels: Billing 61, login 30, odd 1" in said
    assert "odd             1           0    1.1%" in said
    for part in ("separated by semicolons", "1 row is without a label", "1 row is without a text",
                 "1 label changed in spelling", "1 class has a single text", "would be cut",
                 "only 9 texts are held back", "the largest class has 61 rows"):  # fmt: skip
        assert part in said
    found = json.loads(clearformer(*asked, "--json").out)
    assert found["classes"]["odd"] == {"training": 1, "validation": 0}
    assert [each["name"] for each in found["columns"]] == ["id", "message", "topic"]
    sure = clearformer(*asked, "--unlabelled", "error").complaint
    assert "line 94: the label is empty, as in 1 of 94 rows" in sure


def test_a_folder_says_what_is_read_and_what_not(clearformer, tmp_path):
    (tmp_path / "in").mkdir()
    for name, content in {
        "a.txt": b"a text\n", "in/b.md": b"another\n", "c.py": b"import this\n", "d.py": b"",
        "photo.jpg": b"\xff\xd8\xff\xe0\0\x10JFIF", "e.py": b"\0\1", ".hidden": b"x",
    }.items():  # fmt: skip
        (tmp_path / name).write_bytes(content)
    said = clearformer("data", str(tmp_path)).out
    assert said.startswith("2 files are read, 15 bytes\n")
    assert "  skipped: 3 that end in .py\n" in said
    assert "  skipped: 1 that end in .jpg\n" in said
    assert "  skipped: 1 hidden\n" in said
    said = clearformer("data", str(tmp_path), "--include", "*.py, *.jpg").out
    assert said.startswith("1 files are read, 12 bytes\n")
    assert "  skipped: 2 that are binary, not text\n" in said
    assert "  skipped: 1 empty\n" in said
    said = clearformer("data", str(tmp_path), "--include", "*.jpg").complaint
    assert "there are no non-empty *.jpg (skipped:" in said
    assert "1 that are binary, not text" in said
