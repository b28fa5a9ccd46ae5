"""Text as it comes, byte by byte."""

from clearformer.cli.generate import Shown
from clearformer.text import Bytes


def test_a_character_waits_for_all_its_bytes():
    shown = Shown(Bytes().decode)
    pieces = [shown.more(byte) for byte in "aé€😀".encode()]
    assert "".join(pieces) == "aé€😀"
    assert pieces[:3] == ["a", "", "é"]


def test_broken_bytes_come_out_in_the_end():
    shown = Shown(Bytes().decode)
    text = "".join(shown.more(0xFF) for _ in range(3)) + shown.rest()
    assert set(text) == {"�"}
