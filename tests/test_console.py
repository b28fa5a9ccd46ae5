"""Lines on stdout and stderr: control characters are escaped."""

import json

from clearformer import console

EVIL = "a\x1b[2Jb\nforged"


def test_lines_are_escaped(capsys):
    console.say(EVIL)
    console.tell(EVIL)
    out, err = capsys.readouterr()
    assert out == err == "a\\x1b[2Jb\\nforged\n"


def test_multiline_text_keeps_line_breaks(capsys):
    console.tell_text("one\x1b\ntwo\n")
    assert capsys.readouterr().err == "one\\x1b\ntwo\n"


def test_json_is_exact_and_escaped(capsys):
    console.write_json({"text": EVIL})
    line = capsys.readouterr().out
    assert "\x1b" not in line
    assert json.loads(line) == {"text": EVIL}
