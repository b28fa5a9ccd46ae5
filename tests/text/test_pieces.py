"""Byte pairs and WordPiece: they lose nothing they should keep, and learn the same everywhere."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clearformer.text.parts import (
    PATTERNS,
    SPECIALS,
    BytePairParts,
    WordPieceParts,
    byte_characters,
)
from clearformer.text.pieces import BytePairs, WordPieces
from clearformer.text.tokenizer import sha256

LEARN = """
import sys
from pydoc_data.topics import topics
from clearformer.text import sha256, train
prose = [topics[name] for name in sorted(topics)[:25]]
print(sha256(train("bpe", prose, 500)), sha256(train("wordpiece", prose, 700)))
"""


@pytest.fixture(scope="module")
def pairs(prose):
    return BytePairs.train([prose], 600)


@pytest.fixture(scope="module")
def pieces(prose):
    return WordPieces.train([prose], 700)


def test_another_process_learns_the_same():
    """The library's hash tables have another order in each process; ours must not show it."""
    outputs = set()
    for seed in ("1", "2"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        outputs.add(subprocess.check_output([sys.executable, "-c", LEARN], env=environment))
    assert len(outputs) == 1


def test_identities_never_change():
    """A model folder of today must open in ten years: these numbers are part of the format."""
    alphabet = tuple(sorted(byte_characters()))
    assert sha256(BytePairs(BytePairParts(alphabet, ()))) == (
        "0fc3a82624322221b1bbda464e12d02cf3fc1f1747b2fcdc8136db40cd9aebcb"
    )
    assert sha256(WordPieces(WordPieceParts(SPECIALS))) == (
        "6382e285ffbeb11c0c29c9fb866abb48a2747b0f3544ae44f732c9d1a7b3a1bb"
    )


def test_byte_pairs_give_every_text_back(pairs, strange_texts):
    for text in strange_texts:
        assert pairs.decode(pairs.encode(text)) == text


def test_byte_pairs_join_what_is_common(pairs, prose):
    assert pairs.size == 600
    assert len(pairs.encode(prose)) < 0.5 * len(prose)
    assert " the" in pairs.pieces(pairs.encode("on the table"))
    assert pairs.pieces(pairs.encode("漢")) == ["\ufffd"] * 3


def test_a_special_token_is_an_id_and_not_its_name(pairs):
    end = "<|endoftext|>"
    parts = pairs.parts
    special = BytePairs(BytePairParts((*parts.vocabulary, end), parts.merges, specials=(end,)))
    assert special.specials == {end: 600}
    ids = special.encode(f"a{end}b")
    assert 600 not in ids
    assert special.decode(ids) == f"a{end}b"
    assert special.decode([*special.encode("a"), 600]) == f"a{end}"


def test_at_least_the_bytes():
    with pytest.raises(
        ValueError, match="a bpe tokenizer is to be 255, but it must be at least 256"
    ):
        BytePairs.train(["abc"], 255)
    assert BytePairs.train(["abc"], 256).size == 256


def test_word_pieces_are_words_and_their_ends(pieces):
    ids = pieces.encode("The statements are overvalued")
    shown = pieces.pieces(ids)
    assert shown[0] == "the"
    assert any(piece.startswith("##") for piece in shown)
    assert "".join(piece.removeprefix("##") for piece in shown) == "thestatementsareovervalued"
    assert pieces.decode(ids) == "the statements are overvalued"


def test_the_specials_of_word_pieces(pieces):
    assert [pieces.specials[name] for name in SPECIALS] == [0, 1, 2, 3, 4]
    assert (pieces.padding, pieces.before, pieces.after) == (0, (2,), (3,))
    assert pieces.pieces(pieces.encode("the [MASK] is 漢")) == ["the", "[MASK]", "is", "[UNK]"]


def test_what_is_hidden_and_what_goes_on_with_a_word(pieces, pairs):
    assert pieces.mask == 4
    continues = pieces.continues()
    shown = pieces.pieces(range(pieces.size))
    assert [piece.startswith("##") for piece in shown] == continues.tolist()
    assert (pairs.mask, pairs.continues().any()) == (None, False)


def test_case_and_accents_are_kept_by_a_value(prose):
    assert "the" in WordPieces.train([prose + "É"], 300).parts.vocabulary
    cased = WordPieces.train([prose + "É" * 9], 300, lowercase=False)
    assert {"T", "É"} <= set(cased.parts.vocabulary)
    assert cased.pieces(cased.encode("T É")) == ["T", "É"]


def test_characters_beyond_the_limit_are_unknown():
    many = [chr(code) for code in range(0x4E00, 0x4E00 + 200)]
    small = WordPieces.train(["".join(many), many[7] * 9], 64)
    assert small.size <= 64
    assert small.pieces(small.encode(many[7] + many[199])) == [many[7], "[UNK]"]
    with pytest.raises(
        ValueError, match="a wordpiece tokenizer is to be 63, but it must be at least 64"
    ):
        WordPieces.train(["a"], 63)


@pytest.fixture(scope="module")
def folder():
    place = os.environ.get("CLEARFORMER_DATA")
    if not place:
        pytest.skip("CLEARFORMER_DATA does not name a folder with gpt2/ and bert/")
    return Path(place)


def test_gpt2_as_published(folder, strange_texts):
    """The published vocabulary and merges, against the reference implementation."""
    import json

    from transformers import GPT2Tokenizer

    source = folder / "gpt2"
    if not source.is_dir():
        pytest.skip(f"{source} is not there")
    vocabulary = json.loads((source / "encoder.json").read_text(encoding="utf-8"))
    lines = (source / "vocab.bpe").read_text(encoding="utf-8").splitlines()[1:]
    ordered = tuple(sorted(vocabulary, key=vocabulary.__getitem__))
    merges = tuple((a, b) for a, b in (line.split(" ") for line in lines))
    ours = BytePairs(BytePairParts(ordered, merges, specials=("<|endoftext|>",)))
    assert ours.encode("Hello world, it's 2024").tolist() == [15496, 995, 11, 340, 338, 48609]
    theirs = GPT2Tokenizer(str(source / "encoder.json"), str(source / "vocab.bpe"))
    for text in strange_texts:
        if "<|endoftext|>" not in text:
            assert ours.encode(text).tolist() == theirs.encode(text)


def test_bert_as_published(folder, strange_texts):
    from transformers import BertTokenizer

    source = folder / "bert" / "vocab.txt"
    if not source.is_file():
        pytest.skip(f"{source} is not there")
    words = tuple(source.read_text(encoding="utf-8").split("\n")[:-1])
    ours = WordPieces(WordPieceParts(words))
    row = np.concatenate((ours.before, ours.encode("Walking, don't you?"), ours.after))
    assert row.tolist() == [101, 3788, 1010, 2123, 1005, 1056, 2017, 1029, 102]
    theirs = BertTokenizer(str(source))
    for text in strange_texts:
        assert ours.encode(text).tolist() == theirs.encode(text, add_special_tokens=False)


def test_a_special_token_named_by_the_users_own_hand(pairs, pieces):
    end = "<|endoftext|>"
    parts = pairs.parts
    special = BytePairs(BytePairParts((*parts.vocabulary, end), parts.merges, specials=(end,)))
    marked = special.encode_marked(f"a{end}{end}b").tolist()
    assert marked == [*pairs.encode("a"), 600, 600, *pairs.encode("b")]
    assert pairs.encode_marked(f"a{end}").tolist() == pairs.encode(f"a{end}").tolist()
    text = "the [MASK] of it"
    assert pieces.encode_marked(text).tolist() == pieces.encode(text).tolist()


def test_what_opens_a_text_is_no_part_of_its_ids(pairs):
    parts = pairs.parts
    vocabulary = (*parts.vocabulary, "<s>")
    opened = BytePairs(BytePairParts(vocabulary, parts.merges, specials=("<s>",), opening=("<s>",)))
    assert opened.before == (600,)
    assert opened.encode("a").tolist() == pairs.encode("a").tolist()
    assert sha256(BytePairs.from_library(opened.document)) == sha256(opened)
    with pytest.raises(ValueError, match="'<s>' opens a text, but it is no special token"):
        BytePairParts(vocabulary, parts.merges, opening=("<s>",))


def with_specials(tokenizer, *names, **values):
    parts = tokenizer.parts
    vocabulary = (*parts.vocabulary, *names, *values.get("whole", ()))
    specials = (*parts.specials, *names)
    return type(tokenizer)(replace(parts, vocabulary=vocabulary, specials=specials, **values))


@pytest.mark.parametrize("normal_form", [None, "NFC"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_byte_pairs_of_a_stream(pairs, require_equal_streams, pattern, normal_form):
    """Also of texts in which a special token's name has a space, or a token is found whole."""
    names = "<|endoftext|>", "<|endoftext|><|endoftext|>", "a b", "[my, token]"
    values = {"whole": ("<think>",), "pattern": pattern, "normal_form": normal_form}
    ours = with_specials(pairs, *names, **values)
    require_equal_streams(ours.encode_stream, ours.encode)
    require_equal_streams(ours.encode_marked_stream, ours.encode_marked)


def test_word_pieces_of_a_stream(pieces, require_equal_streams):
    ours = with_specials(pieces, "[my, token]", "a b")
    require_equal_streams(ours.encode_stream, ours.encode)
    require_equal_streams(ours.encode_marked_stream, ours.encode_marked)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_an_end_of_text_in_a_stream_is_one_id_where_it_is_marked(pairs, size):
    """As tiktoken with allowed_special; in a text from elsewhere it is text."""
    double = "<|endoftext|><|endoftext|>"
    ours = with_specials(pairs, "<|endoftext|>", double)
    text = f"one<|endoftext|>two{double}🙃 {double}<|endoftext|>"
    data = text.encode()
    chunks = [data[i : i + size] for i in range(0, len(data), size)]
    one, two = ours.specials["<|endoftext|>"], ours.specials[double]
    ids = np.concatenate(list(ours.encode_marked_stream(chunks))).tolist()
    assert [i for i in ids if i in (one, two)] == [one, two, two, one]
    assert ours.decode(ids) == text
    plain = np.concatenate(list(ours.encode_stream(chunks))).tolist()
    assert not {one, two} & set(plain)
    assert plain == ours.encode(text).tolist()
