"""Escaping untrusted text for display."""

import json

import pytest

from clearformer.escape import escape_line, escape_text, is_unsafe, json_line

HOSTILE = [
    ("\x1b[2J", r"\x1b[2J"),  # clears the screen
    ("\x1b]52;c;AAAA\x07", r"\x1b]52;c;AAAA\x07"),  # fills the clipboard
    ("good\rbad", r"good\rbad"),  # overwrites what stands there
    ("\x9b2J", r"\x9b2J"),  # the same sequence in C1
    ("\x7f\x08\x00", r"\x7f\x08\x00"),
    ("a\u202eb\u2066c", r"a\u202eb\u2066c"),  # turn the direction round
    ("a\u2028b\x85c", r"a\u2028b\x85c"),
    ("\ud800\U000e0041", r"\ud800\U000e0041"),
]


@pytest.mark.parametrize(("text", "shown"), HOSTILE)
def test_control_sequences_are_escaped(text, shown):
    assert escape_line(text) == escape_text(text) == shown


def test_escape_line_and_escape_text_line_breaks():
    assert escape_line("a\n\tb") == r"a\n\tb"
    assert escape_text("a\n\tb\r\n\x1b") == "a\n\tb\\r\n\\x1b"


@pytest.mark.parametrize(
    "text",
    ["", "plain", "naïve – “quoted”", "日本\u3000語", "می\u200cخواهم", "👩\u200d👧", "a\\n[red]"],
)
def test_printable_text_is_unchanged(text):
    assert escape_line(text) == escape_text(text) == text


def test_every_control_character_is_unsafe():
    controls = [*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
    assert all(is_unsafe(chr(place)) for place in (*controls, 0x200E, 0x200F, 0x061C, 0xFEFF))


@pytest.mark.parametrize("text", [text for text, _ in HOSTILE])
def test_json_line_is_escaped_and_exact(text):
    line = json_line({"é": [text, "\n"]})
    assert not any(map(is_unsafe, line))
    assert "é" in line
    assert json.loads(line) == {"é": [text, "\n"]}
