"""Terminal output of every command with hostile names, labels and texts."""

import os
import pty
import re
import subprocess
import sys
import threading
import tty
import warnings
from types import SimpleNamespace

import pytest

from clearformer.builder import build
from clearformer.cli import output
from clearformer.cli.main import main
from clearformer.config import Classifier, GenerationDefaults, MaskedToken
from clearformer.escape import is_unsafe
from clearformer.generate.fill import Candidate
from clearformer.generate.translate import Translation
from clearformer.hub.exporting import to_huggingface
from clearformer.hub.importing import Imported
from clearformer.hub.write_run import write_run
from clearformer.text import Bytes

# Clears the screen, fills the clipboard, in C1 too, goes back in the line, turns it round, is
# markup of rich, and forges a line.
EVIL = "\x1b[2J\x1b]52;c;QQ==\x07\x9b3J\rX\u202e[red]r[link=x]\nforged"
SHOWN = r"\x1b[2J\x1b]52;c;QQ==\x07\x9b3J\rX\u202e[red]r[link=x]\nforged"
NAME = EVIL  # a file may be called so: it has no slash and no NUL
OURS = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[1A|\r?\x1b\[2K")  # rich's colours, its bar


class Screen:
    """What a terminal was sent, and how the command ended."""

    def __init__(self, sent, code):
        self.sent, self.code = sent, code
        self.text = OURS.sub("", sent)

    def require_harmless(self):
        left = [each for each in self.text if is_unsafe(each) and each not in "\n\t"]
        assert not left, self.sent
        return self


@pytest.fixture
def terminal(monkeypatch):
    """Run the command line with a terminal for stdin, stdout and stderr."""

    def run(*words):
        ours, theirs = pty.openpty()
        tty.setraw(theirs)  # nothing is added to what is written
        received = []

        def receive():
            try:
                while chunk := os.read(ours, 65536):
                    received.append(chunk)
            except OSError:  # the other end is closed
                return

        reader = threading.Thread(target=receive)
        reader.start()
        code = 0
        with open(theirs, "r+b", buffering=0) as raw:
            streams = {
                name: open(os.dup(theirs), mode, encoding="utf-8", newline="")  # noqa: SIM115
                for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
            }
            with monkeypatch.context() as patch:
                patch.setenv("TERM", "xterm-256color")
                patch.setenv("COLUMNS", "400")
                patch.delenv("CI", raising=False)
                patch.delenv("NO_COLOR", raising=False)
                for name, stream in streams.items():
                    patch.setattr(sys, name, stream)
                try:
                    main([str(word) for word in words])
                except SystemExit as leaving:
                    code = leaving.code or 0
                finally:
                    for stream in streams.values():
                        stream.close()
            assert raw.isatty()
        reader.join(60)
        os.close(ours)
        return Screen(b"".join(received).decode("utf-8"), code)

    return run


@pytest.fixture
def written(small, scrambled, tmp_path):
    """A run with a hostile name, of a model with one."""

    def write(family, name=NAME, **changes):
        config = small(family, vocabulary=256, name=f"{family}-{EVIL}", **changes)
        tensors = {n: p.detach() for n, p in scrambled(build(config)).named_parameters()}
        return write_run(
            Imported("here", config, GenerationDefaults(), Bytes(), tensors, ()), tmp_path / name
        )

    return write


@pytest.fixture
def classifier(written):
    names = (f"bad{EVIL}", "good")
    return written("classifier", head=Classifier(classes=2, names=names))


def test_generated_text_is_escaped(terminal, written, clearformer):
    run = written("gpt2", length=200)
    # Forced bytes come one by one, so each sequence is split over tokens.
    words = ("generate", run, "p", "--forced", EVIL, "--max-tokens", "60")
    screen = terminal(*words).require_harmless()
    assert SHOWN.replace(r"\n", "\n") in screen.text
    for more in (["--samples", "2"], ["--jsonl"], ["--show-probabilities"]):
        screen = terminal(*words, *more).require_harmless()
        assert screen.code == 0, screen.text
    # In a pipe a text is exact.
    assert f"p{EVIL}" in clearformer(*map(str, words)).out


def test_labels_and_texts_are_escaped(terminal, classifier, tmp_path):
    screen = terminal("classify", classifier, f"text{EVIL}").require_harmless()
    assert f"bad{SHOWN}" in screen.text
    table = tmp_path / f"table{EVIL}.csv"
    with table.open("w", newline="") as file:
        file.write(f'text,label\nfine,good\nworse,"bad{EVIL}"\n')
    screen = terminal("evaluate", classifier, "--data", table).require_harmless()
    assert f"bad{SHOWN}" in screen.text
    assert "accuracy" in screen.text
    assert f"bad{SHOWN}" in terminal("data", table).require_harmless().text
    out = tmp_path / f"out{EVIL}.csv"
    screen = terminal("classify", classifier, "--file", table, "--out", out).require_harmless()
    assert f"out{SHOWN}.csv" in screen.text
    assert f"bad{EVIL}".encode() in out.read_bytes()  # a file is exact


def test_unknown_label_is_escaped(terminal, classifier, tmp_path):
    table = tmp_path / "t.csv"
    with table.open("w", newline="") as file:
        file.write(f'text,"{EVIL}"\nfine,x\n')
    screen = terminal("evaluate", classifier, "--data", table).require_harmless()
    assert screen.code == 2
    assert "there is no column 'label'" in screen.text


def test_embed_output_is_escaped(terminal, written):
    screen = terminal("embed", written("gpt2"), f"t{EVIL}", "b").require_harmless()
    assert "similarity" in screen.text
    assert terminal("embed", written("gpt2", "two"), EVIL, "--json").require_harmless().code == 0


def test_fill_output_is_escaped(terminal, written, monkeypatch):
    run = written("bert", head=MaskedToken())
    found = [[Candidate(1, EVIL, 0.5)]] * 2
    monkeypatch.setattr("clearformer.generate.fill.fill", lambda *asked: found)
    assert f" 0.5000  {SHOWN}" in terminal("fill", run, "a", EVIL).require_harmless().text


def test_translate_output_is_escaped(terminal, monkeypatch):
    def translations(texts, **options):
        return [[Translation(EVIL, (1,), -0.5)] for _ in texts]

    config = SimpleNamespace(data=SimpleNamespace(source_column="source"))
    model = SimpleNamespace(
        translations=translations,
        translator=lambda: SimpleNamespace(seems_reversed=lambda text: False),
        run_config=config,
        notes=(),
    )
    monkeypatch.setattr("clearformer.model.load", lambda folder, **options: model)
    assert terminal("translate", "run", "a").require_harmless().text == f"{SHOWN}\n"


def test_describe_and_plan_output_is_escaped(terminal, written, monkeypatch):
    monkeypatch.setattr("clearformer.plan.throughput.SECONDS", 0.05)
    run = written("gpt2")
    screen = terminal("describe", run).require_harmless()
    assert f"gpt2-{SHOWN}" in screen.text  # and rich's markup is none
    screen = terminal("train", "--resume", "--out", run, "--help").require_harmless()
    assert f"gpt2-{SHOWN}"[:20] in screen.text
    screen = terminal("plan", run, "--steps", "1").require_harmless()
    assert screen.code in (0, 2)


def test_attend_output_is_escaped(terminal):
    word = EVIL.replace("\n", "").replace("\r", "")  # white space ends a word
    screen = terminal("attend", f"a {word} b", "--shuffle").require_harmless()
    assert r"\x1b[2J" in screen.text
    assert "[red]r[link=x]" in screen.text


def test_import_output_is_escaped(terminal, small, scrambled, tmp_path):
    config = small("gpt2", vocabulary=256)
    model = scrambled(build(config)).eval()
    to_huggingface(model, config, GenerationDefaults(), Bytes(), tmp_path / NAME)
    screen = terminal("import", tmp_path / NAME, "--out", tmp_path / f"{NAME}2").require_harmless()
    assert f'{SHOWN}2\' "Once upon"' in screen.text  # quoted for a shell
    screen = terminal("export", tmp_path / f"{NAME}2", "--out", tmp_path / f"{NAME}3")
    assert screen.require_harmless().code == 0


def test_training_output_is_escaped(terminal, tmp_path, monkeypatch):
    """The live line, samples with control characters, and the final report."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / f"{NAME}.txt"
    source.write_bytes(("\x1b[2J\x9b[red]" * 400).encode())
    screen = terminal(
        "train", "modern", "--data", source, "--out", tmp_path / NAME, "--length", "32",
        "--layers", "1", "--width", "16", "--heads", "4", "--model.hidden", "32", "--batch-size",
        "8",
        "--threads", "1", "--lr", "0.01", "--steps", "30", "--evaluations", "1",
    ).require_harmless()  # fmt: skip
    assert screen.code == 0, screen.text
    assert f"into {tmp_path}/{SHOWN}" in screen.text
    assert "validation" in screen.text
    card = (tmp_path / NAME / "README.md").read_text()
    assert not any(is_unsafe(each) for each in card.replace("\n", ""))
    assert "\nforged" not in card
    assert (tmp_path / NAME / "loss.png").exists()


@pytest.mark.parametrize("verb", ["generate", "classify", "embed", "fill", "translate", "evaluate"])
def test_errors_are_one_escaped_line(terminal, tmp_path, verb):
    words = () if verb == "evaluate" else ("x",)
    screen = terminal(verb, tmp_path / NAME, *words).require_harmless()
    assert screen.code == 2
    assert screen.text.startswith("clearformer: ")
    assert screen.text.count("\n") == 1


def test_errors_are_escaped_in_a_pipe_too(clearformer, tmp_path):
    assert SHOWN in clearformer("describe", str(tmp_path / NAME)).complaint
    assert r"--layr\x1b[2J" in clearformer("attend", "a b", "--layr\x1b[2J", "1").complaint


def test_tracebacks_and_warnings_are_escaped(capsys, monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    output.escape_reports()
    try:
        raise RuntimeError(EVIL)
    except RuntimeError as problem:
        sys.excepthook(RuntimeError, problem, problem.__traceback__)
    warnings.showwarning(UserWarning(EVIL), UserWarning, "a.py", 1)
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert said.count(r"\x1b[2J") == 2
    assert not any(is_unsafe(each) for each in said.replace("\n", ""))


def test_json_is_valid_on_ascii_terminal():
    program = "from clearformer.cli.output import write_json; write_json({'text': 'é\\U0001f600'})"
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii:backslashreplace"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=ascii_only
    )
    assert done.stdout == '{"text": "\\u00e9\\ud83d\\ude00"}\n'
