"""Texts as arguments, from files and pipes; and no silent waiting."""

import io
import json
import os
import sys
import threading

import pytest

from clearformer.builder import build
from clearformer.cli import inputs
from clearformer.cli.inputs import awaiting, chosen, is_piped, tell_cut
from clearformer.config import Classifier, GenerationDefaults, MaskedToken
from clearformer.generate.fill import Candidate
from clearformer.hub.importing import Imported
from clearformer.hub.write_run import write_run
from clearformer.text import Bytes


@pytest.fixture
def pipe(monkeypatch):
    """Replace the standard input of the process by a pipe with this content."""
    opened = []

    def put(content, *, end=True):
        read, write = os.pipe()
        os.write(write, content)
        if end:
            os.close(write)
        stream = os.fdopen(read, "r", encoding="utf-8")
        opened.append((stream, None if end else write))
        monkeypatch.setattr(sys, "stdin", stream)
        return stream

    yield put
    for stream, write in opened:
        stream.close()
        if write is not None:
            os.close(write)


@pytest.fixture
def model(small, scrambled, tmp_path):
    def write(family, **changes):
        config = small(family, vocabulary=256, **changes)
        tensors = {n: p.detach() for n, p in scrambled(build(config)).named_parameters()}
        return str(
            write_run(
                Imported("here", config, GenerationDefaults(), Bytes(), tensors, ()),
                tmp_path / family,
            )
        )

    return write


NONE = "there is no text: give texts, name a --file, or pipe texts in"


def test_chooses_arguments_file_or_pipe(pipe, monkeypatch):
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert not is_piped()
        assert chosen(("a",), None) is None
        assert chosen((), "f") == "f"
        assert chosen(("-",), None) == "-"
        with pytest.raises(ValueError, match=NONE):
            chosen((), None)
        with pytest.raises(ValueError, match="give either texts or --file, and not both"):
            chosen(("a",), "f")
        with pytest.raises(ValueError, match="- means standard input, so give no other text"):
            chosen(("a", "-"), None)
    pipe(b"x")
    assert is_piped()
    assert chosen((), None) == "-"
    assert chosen(("a",), None) is None
    assert chosen((), "f") == "f"
    monkeypatch.setattr(sys, "stdin", io.StringIO())  # none of the system's, as in a notebook
    assert not is_piped()


def test_reports_waiting_for_silent_pipe(pipe, capsys, monkeypatch):
    said = threading.Event()
    sentences = []
    monkeypatch.setattr(inputs, "PATIENCE", 0.01)
    monkeypatch.setattr(inputs, "tell", lambda sentence: (sentences.append(sentence), said.set()))
    pipe(b"", end=False)
    with awaiting("-", "texts"):
        assert said.wait(60)
    assert sentences == ["clearformer: waiting for texts, on standard input (</dev/null: nothing)"]
    with awaiting("a.txt", "texts"), awaiting(None, "texts"):
        pass
    assert len(sentences) == 1


def test_reports_reading_from_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    with awaiting("-", "texts, one a line"):
        said = capsys.readouterr().err
    assert said == "clearformer: reading texts, one a line, from the terminal: end with Ctrl-D\n"


def test_tell_cut_counts_texts(capsys):
    tell_cut(0, 5, 12)
    tell_cut(1234, 5678, 4096)
    assert capsys.readouterr().err == (
        "note: texts longer than 4,096 tokens were cut to that length: 1,234 of 5,678\n"
    )


@pytest.mark.parametrize("words", [(), ("-",), ("--file", "-")])
def test_embed_and_classify_piped_lines(clearformer, model, pipe, words):
    run = model("gpt2")
    pipe(b"one\ntwo\n")
    rows = clearformer("embed", run, *words, "--json").out.splitlines()
    assert [json.loads(row)["text"] for row in rows] == ["one", "two"]
    run = model("classifier", head=Classifier(classes=2, names=("bad", "good")))
    pipe(b"one\ntwo\n")
    said = clearformer("classify", run, *words).out.splitlines()
    assert [line.split()[-1] for line in said] == ["'one'", "'two'"]


@pytest.mark.parametrize("words", [(), ("-",)])
def test_generate_from_piped_prompt(clearformer, model, pipe, words):
    """All of it is one prompt; with --file each line is one."""
    run = model("gpt2", length=40)
    asked = ("generate", run, "--max-tokens", "3", "--quiet", "--temperature", "0")
    pipe(b"hello\nyou\n")
    assert clearformer(*asked, *words).out == clearformer(*asked, "hello\nyou").out
    pipe(b"hello\nyou\n")
    rows = clearformer(*asked, "--file", "-", "--jsonl").out.splitlines()
    assert [json.loads(row)["prompt"] for row in rows] == ["hello", "you"]


def test_fill_from_piped_lines(clearformer, model, pipe, monkeypatch):
    run = model("bert", head=MaskedToken())
    asked = []

    def fill(model, config, tokenizer, text, top):
        asked.append(text)
        return [[Candidate(1, "x", 0.5)]]

    monkeypatch.setattr("clearformer.generate.fill.fill", fill)
    pipe(b"a [MASK]\nb [MASK]\n")
    assert clearformer("fill", run).out == "a [MASK]\n 0.5000  x\nb [MASK]\n 0.5000  x\n"
    assert clearformer("fill", run, "c [MASK]").out == " 0.5000  x\n"
    assert asked == ["a [MASK]", "b [MASK]", "c [MASK]"]


def test_does_not_read_pipe_if_texts_are_given(clearformer, model, pipe):
    run = model("gpt2", length=40)
    stream = pipe(b"for somebody else\n")
    assert clearformer("embed", run, "a").code == 0
    assert clearformer("generate", run, "\n", "--max-tokens", "2").code == 0
    assert stream.read() == "for somebody else\n"


def test_rejects_empty_pipe(clearformer, model, pipe):
    run = model("gpt2", length=40)
    empty = "standard input is empty, but a text is needed: give one, or pipe one in"
    for words in ((), ("-",)):
        pipe(b"")
        assert clearformer("embed", run, *words).complaint == empty
    pipe(b"")
    assert clearformer("generate", run, "-").complaint == empty
    # A prompt need not be given.
    asked = ("generate", run, "--max-tokens", "3", "--quiet")
    pipe(b"")
    assert clearformer(*asked).out == clearformer(*asked, "\n").out


def test_rejects_closed_standard_input(clearformer, model, monkeypatch):
    run = model("gpt2", length=40)
    monkeypatch.setattr(sys, "stdin", None)
    assert clearformer("embed", run).complaint == NONE
    sys.stdin.close()
    monkeypatch.setattr(sys, "stdin", None)
    said = clearformer("embed", run, "-").complaint
    assert said.startswith("standard input is empty")
    sys.stdin.close()


def test_reads_and_writes_files_by_extension(clearformer, model, tmp_path):
    run = model("classifier", head=Classifier(classes=2, names=("bad", "good")))
    (tmp_path / "x.json").write_text('["one", {"text": "a text of many bytes"}]')
    for ending in ("csv", "tsv", "jsonl", "json"):
        out = tmp_path / f"y.{ending}"
        done = clearformer("classify", run, "--file", str(tmp_path / "x.json"), "--out", str(out))
        assert done.code == 0, done.err
        assert done.err == "note: texts longer than 12 tokens were cut to that length: 1 of 2\n"
    first = json.loads((tmp_path / "y.jsonl").read_text().splitlines()[0])
    assert first["text"] == "one"
    assert first["predicted"] in ("bad", "good")
    assert 0.5 <= first["probability"] <= 1
    assert json.loads((tmp_path / "y.json").read_text())[0] == first
    said = clearformer("classify", run, "x", "--out", str(tmp_path / "y.txt")).complaint
    assert said.endswith("y.txt must end in .csv, .tsv, .jsonl or .json")
    said = clearformer("classify", run, "a\tb", "--out", str(tmp_path / "z.tsv")).complaint
    assert "z.tsv cannot contain 'a\\tb', which has a tab" in said


def test_evaluate_reports_truncated_texts(clearformer, model, tmp_path):
    run = model("classifier", head=Classifier(classes=2, names=("bad", "good")))
    (tmp_path / "t.csv").write_text("text,label\nshort,good\na text of many bytes,bad\n")
    done = clearformer("evaluate", run, "--data", str(tmp_path / "t.csv"))
    assert done.err == "note: texts longer than 12 tokens were cut to that length: 1 of 2\n"
