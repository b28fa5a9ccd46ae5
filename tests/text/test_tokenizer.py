"""Properties of every tokenizer."""

import random
import re

import numpy as np
import pytest

from clearformer.text import KINDS, from_json, sha256, train
from clearformer.text.utf8 import NotTextError, text_chunks

SIZES = {"bytes": None, "characters": 60, "words": 400, "bpe": 600, "wordpiece": 500}

# Tokenizers of checkpoints, which are not trained, have their own tests.
GIVEN = {"fallback-bpe", "sentencepiece"}


@pytest.fixture(scope="module", params=SIZES)
def tokenizer(request, prose):
    return train(request.param, [prose], SIZES[request.param])


def test_every_kind_is_tested():
    assert set(SIZES) | GIVEN == set(KINDS)


def test_ids_are_small_integers_inside_the_vocabulary(tokenizer, strange_texts):
    assert tokenizer.size <= (SIZES[tokenizer.kind] or 256)
    for text in strange_texts:
        ids = tokenizer.encode(text)
        assert ids.dtype == np.int32
        assert ids.ndim == 1
        assert ((ids >= 0) & (ids < tokenizer.size)).all()
        assert len(tokenizer.pieces(ids)) == len(ids)


def test_encode_many_equals_encode(tokenizer, strange_texts):
    for one, text in zip(tokenizer.encode_many(strange_texts), strange_texts, strict=True):
        assert np.array_equal(one, tokenizer.encode(text))


def test_stream_equals_whole_text(tokenizer, prose, monkeypatch):
    prose = prose[:30_000] + "\r\n windows\r\n" * 50
    whole = tokenizer.encode(prose)
    data = prose.encode()
    for size in (100, 777):
        monkeypatch.setattr(
            "clearformer.text.tokenizer.text_chunks",
            lambda chunks, unsplittable, s=size: text_chunks(chunks, s, unsplittable),
        )
        chunks = (data[i : i + 501] for i in range(0, len(data), 501))
        assert np.array_equal(np.concatenate(list(tokenizer.encode_stream(chunks))), whole)


def test_stream_with_special_tokens_equals_whole_text(tokenizer, require_equal_streams):
    require_equal_streams(tokenizer.encode_stream, tokenizer.encode)


def test_decodes_any_slice_of_ids(tokenizer, strange_texts):
    chance = random.Random(0)
    for text in strange_texts:
        ids = tokenizer.encode(text)
        a, b = sorted((chance.randint(0, len(ids)), chance.randint(0, len(ids))))
        assert isinstance(tokenizer.decode(ids[a:b]), str)
    assert tokenizer.decode([]) == ""
    assert isinstance(tokenizer.decode(list(range(tokenizer.size))), str)


def test_rejects_ids_outside_vocabulary(tokenizer):
    for wrong in (-1, tokenizer.size):
        sentence = (
            f"id {wrong} is outside the vocabulary: this tokenizer ({tokenizer.kind}) "
            f"has the ids 0 to {tokenizer.size - 1}"
        )
        with pytest.raises(ValueError, match=re.escape(sentence)):
            tokenizer.decode([0, wrong])
        with pytest.raises(ValueError, match=re.escape(sentence)):
            tokenizer.pieces(np.array([wrong]))


def test_rejects_invalid_utf8(tokenizer):
    if tokenizer.kind == "bytes":
        assert np.concatenate(list(tokenizer.encode_stream([b"\xff", b"\0"]))).tolist() == [255, 0]
    else:
        with pytest.raises(NotTextError, match="byte 1 is 0xFF"):
            list(tokenizer.encode_stream([b"a\xff"]))


def test_rejects_lone_surrogate(tokenizer):
    with pytest.raises(ValueError, match=r"character 1 of the text is U\+D83D"):
        tokenizer.encode("a\ud83d")


def test_json_round_trip_keeps_sha256(tokenizer, strange_texts):
    again = from_json(tokenizer.to_json())
    assert type(again) is type(tokenizer)
    assert again.size == tokenizer.size
    assert sha256(again) == sha256(tokenizer)
    assert (again.prefix_ids, again.suffix_ids, again.padding) == (
        tokenizer.prefix_ids,
        tokenizer.suffix_ids,
        tokenizer.padding,
    )
    for text in strange_texts:
        assert np.array_equal(again.encode(text), tokenizer.encode(text))


def test_training_is_deterministic(tokenizer, prose):
    assert sha256(train(tokenizer.kind, [prose], SIZES[tokenizer.kind])) == sha256(tokenizer)


def test_other_text_gives_other_sha256(tokenizer, prose):
    other = train(tokenizer.kind, [prose[:2000] + "ÄÖÜ zzz"], SIZES[tokenizer.kind])
    assert (sha256(other) == sha256(tokenizer)) == (tokenizer.kind == "bytes")


def test_rejects_empty_training_text(tokenizer):
    if tokenizer.kind == "bytes":
        return
    for texts in ([], [""]):
        with pytest.raises(
            ValueError, match=f"there is no text to train a {tokenizer.kind} tokenizer on"
        ):
            train(tokenizer.kind, texts, SIZES[tokenizer.kind])
