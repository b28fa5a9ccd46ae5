"""Ctrl-C as a stop condition: generated text is not lost."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from clearformer.cli.interruptible import Interrupt

# Waits for Ctrl-C once so many tokens were sampled, or steps of a search made.
WAITING = """
import sys, time
from clearformer.cli.main import main
from clearformer.cli.interruptible import Interrupt
from clearformer.generate.beam import Allowed
from clearformer.generate.sequence import GeneratedSequence

interrupts, calls = [], 0

def begin(interrupt, enter=Interrupt.__enter__):
    interrupts.append(interrupt)
    return enter(interrupt)

def waiting(call):
    def called(*words):
        global calls
        result = call(*words)
        calls += 1
        if calls == int(sys.argv[1]):
            print("waiting", file=sys.stderr, flush=True)
            while not interrupts[0].requested():
                time.sleep(0.01)
        return result
    return called

Interrupt.__enter__ = begin
GeneratedSequence.advance = waiting(GeneratedSequence.advance)
Allowed.__call__ = waiting(Allowed.__call__)
main(sys.argv[2:])
"""


@pytest.fixture
def interrupted():
    """Output of a command that is interrupted by Ctrl-C after this many tokens."""

    def run(tokens, *words):
        program = [sys.executable, "-c", WAITING, str(tokens), *words]
        # Background jobs ignore Ctrl-C, and their children inherit that.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        # Bytes, and decoded here: a carriage return that the model wrote stays one.
        with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            signal.signal(signal.SIGINT, before)
            assert process.stderr.readline() == b"waiting\n"
            os.kill(process.pid, signal.SIGINT)
            out, error = (each.decode() for each in process.communicate(timeout=300))
        assert process.returncode == 130
        assert "Traceback" not in error
        assert re.fullmatch(r"[\d,]+ tokens in [\d.]+ s, [\d,]+ tokens/s\n", error)
        assert error.startswith(f"{tokens} tokens")
        return out

    return run


def test_ctrl_c_keeps_generated_text(clearformer, run, interrupted):
    ask = ("generate", run, "12 g", "--temperature", "0")
    whole = clearformer(*ask, "--max-tokens", "20", "--quiet").out
    assert interrupted(20, *ask) == whole
    # What waits for a stop string that may still come is written, too.
    assert interrupted(20, *ask, "--stop", f"{whole[-4:-1]}#") == whole


def test_ctrl_c_keeps_partial_samples(clearformer, run, interrupted):
    ask = ("generate", run, "12 g", "--samples", "2", "--banned", "\n", "--quiet")
    # Seven tokens of each, and an eighth of the first.
    first, _ = clearformer(*ask, "--max-tokens", "8").out.rstrip("\n").split("\n")
    _, second = clearformer(*ask, "--max-tokens", "7").out.rstrip("\n").split("\n")
    assert interrupted(15, *ask[:-1]) == f"{first}\n{second}\n"


@pytest.mark.parametrize("draft", [(), ("--lookup", "4")])
def test_ctrl_c_marks_interrupted_texts(clearformer, run, tmp_path, interrupted, draft):
    (tmp_path / "p.txt").write_text("12 green\n7\n3 b\n")
    ask = (
        "generate",
        run,
        "--file",
        str(tmp_path / "p.txt"),
        "--jsonl",
        "--batch-size",
        "1",
        *draft,
    )
    rows = [json.loads(line) for line in clearformer(*ask, "--max-tokens", "12").out.splitlines()]
    cut = clearformer(*ask, "--max-tokens", "5").out.splitlines()[1]
    left = interrupted(17, *ask, "--max-tokens", "12").splitlines()
    # The third was never begun.
    assert [json.loads(line) for line in left] == [
        rows[0],
        json.loads(cut) | {"reason": "interrupted"},
    ]


def test_ctrl_c_keeps_best_beam(clearformer, run, tmp_path, interrupted):
    (tmp_path / "p.txt").write_text("12 green\n7\n3 b\n")
    ask = ("generate", run, "--file", str(tmp_path / "p.txt"), "--jsonl", "--batch-size", "1")
    ask += ("--beam", "3", "--banned", "#255")
    rows = [json.loads(line) for line in clearformer(*ask, "--max-tokens", "12").out.splitlines()]
    cut = json.loads(clearformer(*ask, "--max-tokens", "5").out.splitlines()[1])
    # A search has already computed the next token and includes it.
    left = interrupted(17, *ask, "--max-tokens", "12").splitlines()
    assert [json.loads(line) for line in left] == [rows[0], cut | {"reason": "interrupted"}]


def test_second_ctrl_c_raises_and_background_job_ignores_it():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with Interrupt() as interrupt:
            signal.raise_signal(signal.SIGINT)
            assert interrupt.requested()
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with Interrupt() as interrupt:
            signal.raise_signal(signal.SIGINT)
            assert not interrupt.requested()
    finally:
        signal.signal(signal.SIGINT, before)
