"""Texts as documents of sentences: sentence boundaries, and no loss of text."""

import re

import numpy as np
import pytest

from clearformer.data import TextSource, encode_documents, file_texts, open_text
from clearformer.data.documents import split_sentences
from clearformer.data.texts import in_memory
from clearformer.text import Bytes, WordPieces


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?  Four", ["One.", "Two!", "Three?", "Four"]),
        ("a line\nanother\r\n\r\n third ", ["a line", "another", "third"]),
        ("it was bad.<br /><br />Really<br/>bad", ["it was bad.", "Really", "bad"]),
        ("3.14 is e.g.this one", ["3.14 is e.g.this one"]),
        (" \n ", []),
    ],
)
def test_split_sentences(text, sentences):
    assert split_sentences(text) == sentences


def test_encode_documents_offsets():
    found = encode_documents("it", ["ab. cde", "", "\x00", "f\ngh. i"], Bytes())
    assert bytes(found.flat.astype(np.uint8)) == b"ab.cde\x00fgh.i"
    assert found.sentences.tolist() == [0, 3, 6, 7, 8, 11, 12]
    assert found.documents.tolist() == [0, 2, 3, 6]
    assert len(found) == 3


def test_skips_sentences_without_tokens():
    pieces = WordPieces.train(["a b c d e"], 64)  # which cleans control characters away
    found = encode_documents("it", ["a\n\x01\nb c", "\x01", "d"], pieces)
    assert pieces.pieces(found.flat) == ["a", "b", "c", "d"]
    assert found.sentences.tolist() == [0, 1, 3, 4]
    assert found.documents.tolist() == [0, 2, 3]


def test_encoding_in_groups_gives_same_result(monkeypatch):
    texts = ["\n".join(f"{i} {j}" for j in range(i % 5)) for i in range(40)]
    whole = encode_documents("it", texts, Bytes())
    monkeypatch.setattr("clearformer.data.documents.GROUP", 7)
    again = encode_documents("it", texts, Bytes())
    assert whole.sha256() == again.sha256()
    assert whole.sha256() != encode_documents("it", texts[:-1], Bytes()).sha256()
    assert whole.sha256() != encode_documents("it", ["\n".join(texts)], Bytes()).sha256()


def test_rejects_text_without_tokens():
    with pytest.raises(ValueError, match="mine: it has no tokens, but a text is needed"):
        encode_documents("mine", ["", " \n"], Bytes())


def test_file_texts_of_whole_and_part():
    pieces = (in_memory("a", "ä one".encode()), in_memory("b", b"two\n"), in_memory("c", b"three"))
    text = TextSource("all", pieces)
    assert list(file_texts(text)) == ["ä one\n", "two\n", "three"]
    assert list(file_texts(text.part(3, 9))) == ["one\n", "tw"]


def test_invalid_text_error_names_file_and_line():
    text = TextSource("all", (in_memory("a", b"fine\n"), in_memory("b", b"x\ny\xff\n")))
    with pytest.raises(ValueError, match=re.escape("b, line 2: byte 3 is 0xFF")):
        list(file_texts(text))


def test_rejects_file_changed_while_reading(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("one. two.\n")
    text = open_text(path)
    assert text.fingerprint
    path.write_text("two. one.\n")
    with pytest.raises(ValueError, match=r"text.txt: it was changed while it was being read"):
        list(file_texts(text))
