"""Display of generated texts and tokens."""

import json
from types import SimpleNamespace

from clearformer.cli.generated import as_json, as_line, coloured, tabled
from clearformer.cli.output import write_json
from clearformer.generate.detokenize import Token
from clearformer.generate.stream import Completion


def test_tokens_are_coloured_by_surprisal(capsys, monkeypatch):
    sure, odd = Token(1, "a", 0.5, 0.2, 0.1), Token(1, "\x9ba", 0.5, 9.0, 0.1)
    tabled(odd)
    assert capsys.readouterr().out == '  0.5000    9.00 bits   0.1000  "\\u009ba"\n'
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    coloured(sure)
    coloured(odd)
    assert capsys.readouterr().out == "\x1b[38;5;46ma\x1b[0m\x1b[38;5;196m\\x9ba\x1b[0m"


def test_json_output_is_one_line(capsys):
    tokens = [Token(1, "a\u2028", 0.5, 1.00004, 0.1), Token(7, "\n\x85", 0.25, 2.0, 0.7)]
    text = SimpleNamespace(prompt="é", text="a\u2028\n\x85", finish_reason="length", tokens=tokens)
    assert as_line(text) == "éa\u2028\n\x85\n"
    write_json(as_json(text, 3, Completion("", "", tuple(tokens), "end").numbers()))
    line = capsys.readouterr().out
    assert len(line.splitlines()) == 1
    assert "é" in line
    assert json.loads(line) == {
        "prompt": "é", "sample": 3, "text": text.text, "reason": "length", "tokens": 2,
        "ids": [1, 7], "probabilities": [0.5, 0.25], "bits": [1.0, 2.0], "uniforms": [0.1, 0.7],
    }  # fmt: skip
