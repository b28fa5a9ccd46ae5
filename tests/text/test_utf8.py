"""Strict UTF-8 decoding: position of the first invalid byte, and chunks that split no token."""

import random
import re

import pytest

from clearformer.text.utf8 import NotTextError, decode, require_unicode, text_chunks

ADVICE = "save the text as UTF-8 (a generator with the bytes tokenizer accepts any file)"


def in_bytes(data, sizes):
    """The data as a stream of chunks of these sizes, over and over."""
    place = 0
    while place < len(data):
        size = sizes[place % len(sizes)]
        yield data[place : place + size]
        place += size


def test_decode_is_strict():
    assert decode("añ漢😀".encode()) == "añ漢😀"
    with pytest.raises(NotTextError, match=re.escape("byte 3 is 0xE9, which is not UTF-8 there")):
        decode("caf\u00e9".encode("latin-1"))
    with pytest.raises(
        NotTextError, match=re.escape(f"byte 1 is NUL, as in a binary file or in UTF-16: {ADVICE}")
    ):
        decode(b"a\0b")
    with pytest.raises(NotTextError, match="byte 1 is 0xE6"):
        decode("a漢".encode()[:-1])


@pytest.mark.parametrize("sizes", [(1,), (2, 3, 5), (1000,)])
def test_chunks_join_to_the_text(strange_texts, sizes):
    text = "".join(strange_texts).replace("\0", "")
    assert "".join(text_chunks(in_bytes(text.encode(), sizes), 50)) == text


def test_chunks_depend_only_on_text(strange_texts):
    text = "".join(strange_texts).replace("\0", "")
    first = list(text_chunks([text.encode()], 50))
    assert len(first) > 10
    assert max(map(len, first)) <= 32 * 50
    for sizes in ((1,), (7, 64)):
        assert list(text_chunks(in_bytes(text.encode(), sizes), 50)) == first


def test_chunk_ends_before_a_space():
    text = " ".join(["word", "  two", "\n\nline"] * 40)
    chunks = list(text_chunks([text.encode()], 40))
    assert all(chunk[0] == " " and not chunk[-1].isspace() for chunk in chunks[1:-1])
    assert all(
        "<br" not in chunk or "<br />" in chunk for chunk in text_chunks([b"a<br />" * 99], 40)
    )


def test_text_without_spaces_is_cut_before_punctuation():
    chunks = list(text_chunks(["漢字，漢字。\n".encode() * 50], 40))
    assert "".join(chunks) == "漢字，漢字。\n" * 50
    assert {chunk[0] for chunk in chunks[1:]} <= {"，", "。"}
    assert max(map(len, chunks)) <= 40


def test_punctuation_and_line_break_stay_together():
    """Byte pairs of Llama 3 take them as one token."""
    chunks = list(text_chunks([b"word.\n" * 50 + b"end\n" * 50], 40))
    assert all(chunk.startswith("\n") for chunk in chunks[1:])
    assert all(chunk[-1].isalpha() for chunk in chunks[:-1])


def test_chunk_size_is_bounded():
    text = "x" * 1000 + " y" + "z" * 5000
    for sizes in ((1000,), (1, 7)):
        chunks = list(text_chunks(in_bytes(text.encode(), sizes), 50))
        assert [len(chunk) for chunk in chunks] == [1000, 1600, 1600, 1600, 202]


def test_unsplittable_strings_stay_whole():
    whole = ("a b, c", "xyx")
    for repeated in ("a b, c", "xyx", "xyxyx a b, c", "a b, c a b, d"):
        text = repeated * 800
        chunks = list(text_chunks([text.encode()], 20, whole))
        assert "".join(chunks) == text
        assert len(chunks) > 3
        places = [len("".join(chunks[:i])) for i in range(1, len(chunks))]
        for each in whole:
            for place in places:
                assert each not in text[max(0, place - len(each) + 1) : place + len(each) - 1]


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_reports_offset_of_invalid_byte(size):
    chance = random.Random(size)
    good = "añ漢😀 z\n".encode() * 20
    for _ in range(50):
        place = chance.randrange(len(good))
        while good[place] & 0xC0 == 0x80:  # at the beginning of a character
            place += 1
        for wrong in (b"\xff", b"\0"):
            data = good[:place] + wrong + good[place:]
            with pytest.raises(NotTextError) as caught:
                list(text_chunks(in_bytes(data, (size,)), 30))
            assert caught.value.offset == place


def test_reports_offset_of_truncated_character():
    with pytest.raises(NotTextError) as caught:
        list(text_chunks([b"ab", "漢".encode()[:2]]))
    assert caught.value.offset == 2


def test_rejects_lone_surrogate():
    require_unicode("fine 😀")
    sentence = (
        "character 2 of the text is U+D800, a lone surrogate, which is not valid text: remove it"
    )
    with pytest.raises(ValueError, match=re.escape(sentence)):
        require_unicode("ab\ud800c")
