"""Byte-fallback tokenizers (Llama 2): same ids and texts as the tokenizers library."""

import json

import pytest

from clearformer.text import ByteFallbackPairs, from_json, sha256, train
from clearformer.text.byte_fallback import BYTES, DECODER, LEADING_SPACE, SPACE, FallbackSpec


@pytest.fixture(scope="session")
def documents(prose):
    """Documents of other tools, by how they specify the leading space."""
    from tokenizers import Tokenizer, models, trainers

    words = prose.replace(" ", SPACE)
    library = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=400, show_progress=False)
    library.train_from_iterator([line for line in words.splitlines() if line], trainer)
    learned = json.loads(library.to_str())["model"]
    tokens = ["<unk>", "<s>", "</s>", *BYTES]
    tokens += [token for token in learned["vocab"] if token not in tokens]
    model = {
        "type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True,
        "ignore_merges": False, "vocab": {token: i for i, token in enumerate(tokens)},
        "merges": learned["merges"],
    }  # fmt: skip
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": i, "content": name, **plain, "special": True} for i, name in enumerate(tokens[:3])
    ]
    post = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    }  # fmt: skip
    return {
        name: {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": normalizer, "pre_tokenizer": split, "post_processor": post,
            "decoder": DECODER, "model": model,
        }
        for name, (normalizer, split) in LEADING_SPACE.items()
    }  # fmt: skip


@pytest.mark.parametrize("front", list(LEADING_SPACE))
def test_ids_and_texts_match_tokenizers_library(documents, strange_texts, front):
    from tokenizers import Tokenizer

    document = {k: v for k, v in documents[front].items() if k not in ("truncation", "padding")}
    ours = ByteFallbackPairs.from_library(document)
    theirs = Tokenizer.from_str(json.dumps(documents[front]))
    theirs.encode_special_tokens = True
    assert (ours.prefix_ids, ours.spec.leading_space) == ((1,), front)
    for text in strange_texts:
        expected = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text).tolist() == expected, text
        assert ours.decode(expected) == theirs.decode(expected, skip_special_tokens=False)
        if not text.startswith(" ") and "\0" not in text:
            assert ours.decode(expected) == text
            (streamed,) = ours.encode_stream([text.encode()])
            assert streamed.tolist() == expected
    assert ours.encode_with_specials("<s> a</s>").tolist()[0] == 1
    assert ours.encode("<s>").tolist()[0] != 1
    assert ours.pieces([0, 1])[0] == "<unk>"
    again = from_json(json.loads(json.dumps(ours.to_json())))
    assert sha256(again) == sha256(ours)


@pytest.mark.parametrize("front", list(LEADING_SPACE))
def test_continuation_has_no_leading_space(documents, strange_texts, front):
    document = {k: v for k, v in documents[front].items() if k not in ("truncation", "padding")}
    ours = ByteFallbackPairs.from_library(document)
    for text in strange_texts:
        ids = ours.encode_continuation(text).tolist()
        assert ours.decode([*ours.encode("a"), *ids]) == "a" + text
    assert ours.encode_continuation("<s>").tolist()[0] != 1
    with pytest.raises(ValueError, match="a lone surrogate"):
        ours.encode_continuation("\ud800")


def test_unknown_token_is_optional(documents):
    """transformers 5 writes null there: all bytes are known, so nothing is unknown."""
    good = {k: v for k, v in documents["split"].items() if k not in ("truncation", "padding")}
    bare = {**good, "model": {**good["model"], "unk_token": None}}
    assert sha256(ByteFallbackPairs.from_library(bare)) == sha256(
        ByteFallbackPairs.from_library(good)
    )


def test_rejects_unsupported_documents(documents):
    good = {k: v for k, v in documents["split"].items() if k not in ("truncation", "padding")}
    for changes, message in [
        ({"pre_tokenizer": None}, "normalizer and pre_tokenizer are"),
        ({"decoder": None}, "decoder is None"),
        ({"model": {**good["model"], "unk_token": "[UNK]"}}, "model.unk_token"),
        ({"model": {**good["model"], "dropout": 0.1}}, "model.dropout"),
        ({"model": {**good["model"], "merges": [["a"]]}}, "a merge has two tokens"),
    ]:
        with pytest.raises(ValueError, match=message):
            ByteFallbackPairs.from_library({**good, **changes})
    with pytest.raises(ValueError, match="of the 256 bytes and <unk> are missing"):
        FallbackSpec(vocabulary=("<unk>", "a"), merges=())
    with pytest.raises(ValueError, match="needs 'ab', which is not in the vocabulary"):
        FallbackSpec(vocabulary=("<unk>", "a", "b", *BYTES), merges=(("a", "b"),))
    with pytest.raises(ValueError, match="cannot be trained here: use bpe"):
        train("fallback-bpe", ["a"])


@pytest.mark.parametrize("front", list(LEADING_SPACE))
def test_stream_with_special_tokens_equals_whole_text(documents, require_equal_streams, front):
    document = {k: v for k, v in documents[front].items() if k not in ("truncation", "padding")}
    ours = ByteFallbackPairs.from_library(document)
    require_equal_streams(ours.encode_stream, ours.encode)
