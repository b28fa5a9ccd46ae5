"""Encodings of tables (test_table_files.py reads whole tables)."""

import pytest

from clearformer.data.table_encoding import decoded_table
from clearformer.data.texts import TextSource, in_memory


def decode(content, encoding=None):
    notes = []
    source = TextSource("t", (in_memory("t", content),))
    return "".join(decoded_table(source, encoding, notes.append)), notes


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252"])
def test_round_trip(encoding):
    text = "naïve café\n" * 10
    assert decode(text.encode(encoding))[0].removeprefix("\ufeff") == text
    assert decode(text.encode(encoding), encoding) == (text, [])


def test_mark_of_a_named_encoding_is_no_text():
    assert decode("text".encode("utf-8-sig"), "utf-8") == ("text", [])


def test_bytes_of_no_encoding():
    with pytest.raises(ValueError, match=r"line 2: byte 3 is 0x81, .*name its encoding"):
        decode(b"ok\n\x81\n")
