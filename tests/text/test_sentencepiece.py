"""SentencePiece as in Marian: parity with the reference, and damaged files."""

import io
import json
import random
import struct

import numpy as np
import pytest

from clearformer.text import from_json, sha256, train
from clearformer.text.sentencepiece import SentencePieces, fields, verify

spm = pytest.importorskip("sentencepiece")


@pytest.fixture(scope="session")
def models(prose):
    """Two models, each learned from half of the lines, and a vocabulary that lacks some pieces."""
    lines = [line for line in prose.splitlines() if line.strip()]
    files, tokens = [], ["</s>", "<unk>"]
    for half, rule in enumerate(("nmt_nfkc", "nmt_nfkc_cf")):
        out = io.BytesIO()
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(lines[half::2]),
            model_writer=out,
            vocab_size=400,
            normalization_rule_name=rule,
            minloglevel=2,
            num_threads=1,
        )
        files.append(out.getvalue())
        model = spm.SentencePieceProcessor(model_proto=out.getvalue())
        pieces = map(model.id_to_piece, range(3, model.get_piece_size()))
        tokens += [piece for piece in pieces if piece not in tokens]
    kept = [token for i, token in enumerate(tokens) if i < 2 or i % 17]
    return files, [*kept, ">>fra<<", "<pad>"]


@pytest.fixture(scope="session")
def ours(models):
    (source, target), vocabulary = models
    return SentencePieces(source, target, vocabulary)


CODES = [">>fra<< Hello you", ">>xx<<hi", ">>open", ">><<x", "the <unk> is </s> here <pad>"]


def test_ids_and_texts_match_transformers(models, ours, strange_texts, tmp_path):
    transformers = pytest.importorskip("transformers")
    (source, target), vocabulary = models
    (tmp_path / "source.spm").write_bytes(source)
    (tmp_path / "target.spm").write_bytes(target)
    ids = {token: i for i, token in enumerate(vocabulary)}
    (tmp_path / "vocab.json").write_text(json.dumps(ids))
    with pytest.warns(UserWarning, match="sacremoses"):
        theirs = transformers.MarianTokenizer.from_pretrained(tmp_path)
    for text in [*strange_texts, *CODES]:
        expected = theirs(text, split_special_tokens=True).input_ids[:-1]
        assert ours.encode(text).tolist() == expected, text
        expected = theirs(text_target=text, split_special_tokens=True).input_ids[:-1]
        assert ours.encode_targets([text])[0].tolist() == expected, text
    chance = random.Random(0)
    for _ in range(100):
        some = [chance.randrange(ours.size) for _ in range(chance.randrange(12))]
        assert ours.decode(some) == theirs.decode(some, skip_special_tokens=True)


def test_json_round_trip(ours):
    again = from_json(json.loads(json.dumps(ours.to_json())))
    assert sha256(again) == sha256(ours)
    assert again.encode("A few words").tolist() == ours.encode("A few words").tolist()
    assert ours.pieces([0, 1, ours.size - 1]) == ["</s>", "<unk>", "<pad>"]
    assert ours.padding == ours.size - 1
    with pytest.raises(ValueError, match="is outside the vocabulary"):
        ours.decode([ours.size])


def test_rejects_invalid_document(ours):
    good = ours.to_json()
    for changes, message in [
        ({"source": "?"}, "source is not a file in base64"),
        ({"target": 5}, "target is not a file in base64"),
        ({"vocabulary": "abc"}, "vocabulary is 'abc', but it must be a list"),
        ({"vocabulary": ["a", "a"]}, "must be different"),
        ({"vocabulary": ["a", "</s>"]}, "the special token <unk> is missing"),
        ({"source": ""}, "source.spm is not a valid SentencePiece model: it has 0 pieces"),
    ]:
        with pytest.raises(ValueError, match=message):
            from_json({**good, **changes})
    with pytest.raises(ValueError, match="cannot be trained here: use bpe"):
        train("sentencepiece", ["a"])


def test_invalid_file_never_reaches_the_library(models):
    good = models[0][0]
    verify(good)
    for cut in (1, len(good) // 2, len(good) - 1):
        with pytest.raises(ValueError, match=r"it was cut, or is something else|pieces"):
            verify(good[:cut])
    with pytest.raises(ValueError, match="something else"):
        verify(b"{" + good)
    piece = message((1, b"\xff"), (2, 0.0))
    with pytest.raises(ValueError, match="not UTF-8 text"):
        verify(message((1, piece)))
    with pytest.raises(ValueError, match="'x' is empty or has no score"):
        verify(message((1, message((1, b"x"), (2, float("nan"))))))
    with pytest.raises(ValueError, match="'x' is of type 9"):
        verify(message((1, message((1, b"x"), (3, 9)))))


def test_rejects_normalizer_table_with_invalid_offsets(models):
    """The library would follow it."""
    good = models[0][0]
    normalizer = next(value for field, value in fields(good) if field == 3)
    table = next(value for field, value in fields(normalizer) if field == 2)
    size = int.from_bytes(table[:4], "little")
    units = np.frombuffer(table[4 : 4 + size], dtype="<u4").copy()

    def refused(message_, wrong):
        changed = good.replace(
            message((2, table))[-len(table) :], wrong.ljust(len(table), b"\0")[: len(table)]
        )
        with pytest.raises(ValueError, match=message_):
            verify(changed)

    refused("no valid size", (size + 1).to_bytes(4, "little") + table[4:])
    far = units.copy()
    far[0] = (len(units) * 4) << 10
    refused("outside of itself", table[:4] + far.tobytes() + table[4 + size :])
    inner = units >> 31 == 0
    leaf = inner & (units >> 8 & 1 == 1)
    place = int(np.flatnonzero(leaf)[0])
    offset = int((units[place] >> 10) << ((units[place] & 512) >> 6))
    far = units.copy()
    far[place ^ offset] = 0x7FFFFFFF
    refused("past the end of its texts|outside", table[:4] + far.tobytes() + table[4 + size :])


def message(*parts):
    """A protocol buffer of these fields."""
    out = b""
    for field, value in parts:
        match value:
            case bytes():
                out += varint(field << 3 | 2) + varint(len(value)) + value
            case float():
                out += varint(field << 3 | 5) + struct.pack("<f", value)
            case int():
                out += varint(field << 3) + varint(value)
    return out


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def test_stream_equals_whole_text(ours, require_equal_streams):
    require_equal_streams(ours.encode_stream, ours.encode)
    chunks = [b">>fr", b"a<< Hello ", b">>fra<< you"]
    assert [*map(list, ours.encode_stream(chunks))] == [
        list(ours.encode(b"".join(chunks).decode()))
    ]
