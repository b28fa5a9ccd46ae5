"""Tokenizers from their published files: same ids as the reference implementation."""

import json
import os
from pathlib import Path

import pytest

from clearformer.hub.tokenizer_files import BYTES, read_tokenizer, write_tokenizer
from clearformer.text import BytePairs, Bytes, Characters, WordPieces, sha256
from clearformer.text.specs import BytePairSpec

END = "<|endoftext|>"


@pytest.fixture(scope="session")
def ended(pairs):
    """Learned byte pairs with GPT-2's special token at the end."""
    parts = pairs.spec
    return BytePairs(BytePairSpec((*parts.vocabulary, END), parts.merges, specials=(END,)))


def write_gpt2(folder, parts, names=("vocab.json", "merges.txt")):
    ids = {token: i for i, token in enumerate(parts.vocabulary)}
    (folder / names[0]).write_text(json.dumps(ids), encoding="utf-8")
    lines = "\n".join(" ".join(merge) for merge in parts.merges)
    (folder / names[1]).write_text(f"#version: 0.2\n{lines}\n", encoding="utf-8")


# --- the same as the reference -------------------------------------------------------------


def agree_as_gpt2(ours, theirs, texts):
    for text in texts:
        assert ours.encode_with_specials(text).tolist() == theirs.encode(text), repr(text)
        plain = theirs.encode(text, split_special_tokens=True)
        if END in text:  # our default: a text cannot name a special token
            assert ours.encode(text).tolist() == plain
        assert ours.decode(plain) == theirs.decode(plain, clean_up_tokenization_spaces=False)


def agree_as_bert(ours, theirs, texts):
    for text in texts:
        row = [*ours.prefix_ids, *ours.encode(text).tolist(), *ours.suffix_ids]
        assert row == theirs.encode(text), repr(text)
        assert ours.encode_with_specials(text).tolist() == theirs.encode(
            text, add_special_tokens=False
        )


@pytest.mark.parametrize("names", [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")])
def test_gpt2_vocab_and_merges_match_transformers(
    transformers, ended, strange_texts, tmp_path, names
):
    write_gpt2(tmp_path, ended.spec, names)
    ours = read_tokenizer(tmp_path)
    assert sha256(ours) == sha256(ended)
    theirs = transformers.GPT2TokenizerFast(str(tmp_path / names[0]), str(tmp_path / names[1]))
    agree_as_gpt2(ours, theirs, strange_texts)
    # And as they write it themselves.
    theirs.save_pretrained(tmp_path / "saved")
    assert sha256(read_tokenizer(tmp_path / "saved")) == sha256(ended)


@pytest.mark.parametrize("lowercase", [True, False])
def test_bert_vocab_matches_transformers(transformers, prose, strange_texts, tmp_path, lowercase):
    learned = WordPieces.train([prose], 500, lowercase=lowercase)
    (tmp_path / "vocab.txt").write_text("\n".join(learned.spec.vocabulary) + "\n")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lowercase}))
    ours = read_tokenizer(tmp_path)
    assert sha256(ours) == sha256(learned)
    theirs = transformers.BertTokenizerFast(str(tmp_path / "vocab.txt"), do_lower_case=lowercase)
    agree_as_bert(ours, theirs, strange_texts)
    theirs.save_pretrained(tmp_path / "saved")
    assert sha256(read_tokenizer(tmp_path / "saved")) == sha256(learned)


@pytest.fixture
def published():
    place = os.environ.get("CLEARFORMER_DATA")
    if not place or not (Path(place) / "gpt2").is_dir() or not (Path(place) / "bert").is_dir():
        pytest.skip("CLEARFORMER_DATA does not name a folder with gpt2/ and bert/")
    return Path(place)


def test_published_gpt2_tokenizer_matches_transformers(transformers, published, strange_texts):
    files = published / "gpt2" / "encoder.json", published / "gpt2" / "vocab.bpe"
    ours = read_tokenizer(published / "gpt2")
    assert (ours.size, ours.specials) == (50_257, {END: 50_256})
    agree_as_gpt2(ours, transformers.GPT2TokenizerFast(*map(str, files)), strange_texts)


def test_published_bert_tokenizer_matches_transformers(transformers, published, strange_texts):
    ours = read_tokenizer(published / "bert")
    assert ours.size == 30_522
    theirs = transformers.BertTokenizerFast(str(published / "bert" / "vocab.txt"))
    agree_as_bert(ours, theirs, strange_texts)


# --- to others and back --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bytes", "pairs", "ended", "opened", "pieces", "cased"])
def test_written_tokenizer_opens_in_transformers(
    transformers, pairs, ended, pieces, prose, strange_texts, tmp_path, kind
):
    start = BytePairSpec(
        (*pairs.spec.vocabulary, "<s>"), pairs.spec.merges, "llama3", True, ("<s>",), ("<s>",)
    )
    ours = {
        "bytes": Bytes(),
        "pairs": pairs,
        "ended": ended,
        "opened": BytePairs(start),
        "pieces": pieces,
        "cased": WordPieces.train([prose], 300, lowercase=False),
    }[kind]
    ids = write_tokenizer(ours, tmp_path, 64)
    assert sha256(read_tokenizer(tmp_path)) == sha256(ours)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert len(theirs) == ours.size
    assert theirs.model_max_length == 64
    for text in strange_texts:
        row = [*ours.prefix_ids, *ours.encode_with_specials(text).tolist(), *ours.suffix_ids]
        assert theirs.encode(text) == row, repr(text)
    assert ids["eos_token_id"] == (300 if kind == "ended" else None)
    assert ids["pad_token_id"] == (0 if kind in ("pieces", "cased") else None)


def test_pair_of_texts_gets_two_segments(transformers, pieces, tmp_path):
    write_tokenizer(pieces, tmp_path, 64)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    found = theirs("the one", "the other")
    first, second = pieces.encode("the one").tolist(), pieces.encode("the other").tolist()
    (cls,), (sep,) = pieces.prefix_ids, pieces.suffix_ids
    assert found["input_ids"] == [cls, *first, sep, *second, sep]
    assert found["token_type_ids"] == [0] * (len(first) + 2) + [1] * (len(second) + 1)


def test_bytes_tokenizer_exports_byte_values_as_ids(transformers, tmp_path):
    write_tokenizer(Bytes(), tmp_path, 64)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.encode("aé€\n\x00") == list("aé€\n\x00".encode())
    assert BYTES.vocabulary[ord("a")] == "a"


def test_rejects_tokenizer_without_export_format(tmp_path):
    with pytest.raises(
        ValueError,
        match="a characters tokenizer cannot be opened by other tools, only bytes",
    ):
        write_tokenizer(Characters("ab"), tmp_path, 64)


# --- what is wrong -------------------------------------------------------------------------


def test_returns_none_without_tokenizer_files(tmp_path):
    assert read_tokenizer(tmp_path) is None


def test_ignores_truncation_and_padding(pieces, tmp_path, edit):
    """Limits and padding in tokenizer.json change no id of a text."""
    write_tokenizer(pieces, tmp_path, 64)
    edit(
        tmp_path / "tokenizer.json",
        truncation={"max_length": 4, "strategy": "LongestFirst", "stride": 0},
        padding={"strategy": {"Fixed": 4}, "pad_id": 0},
    )
    assert sha256(read_tokenizer(tmp_path)) == sha256(pieces)


def test_rejects_contradicting_files(pieces, tmp_path, edit):
    write_tokenizer(pieces, tmp_path, 64)
    edit(tmp_path / "tokenizer_config.json", do_lower_case=False)
    with pytest.raises(ValueError, match="they contradict"):
        read_tokenizer(tmp_path)


DAMAGE = [
    ({"model": {"type": "Unigram", "vocab": []}}, "it is a 'Unigram', but only BPE and WordPiece"),
    ({"model": None}, "tokenizer.json is not one of the tokenizers library"),
    (
        {
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [
                    {
                        "type": "Split",
                        "pattern": {"Regex": "(a+)+$"},
                        "behavior": "Isolated",
                        "invert": False,
                    },
                    {
                        "type": "ByteLevel",
                        "add_prefix_space": False,
                        "use_regex": False,
                    },
                ],
            }
        },
        "an unknown pattern may hang for ever",
    ),
    ({"normalizer": {"type": "NFKC"}}, "normalizer is"),
]


@pytest.mark.parametrize(("changes", "sentence"), DAMAGE)
def test_rejects_unsupported_tokenizer_json(pairs, tmp_path, edit, changes, sentence):
    write_tokenizer(pairs, tmp_path, 64)
    edit(tmp_path / "tokenizer.json", **changes)
    with pytest.raises(ValueError, match=f"its tokenizer: .*{sentence}|: {sentence}"):
        read_tokenizer(tmp_path)


def test_rejects_invalid_vocab_and_merges(ended, tmp_path):
    write_gpt2(tmp_path, ended.spec)
    (tmp_path / "merges.txt").write_text("a b c\n")
    with pytest.raises(ValueError, match=r"merges.txt has the line 'a b c', but a merge has two"):
        read_tokenizer(tmp_path)
    for text in ('{"a": 5}', '{"a": "0"}', "{}", "[]", "[5]", '"a"', "1.5", '{"a": 0, "b": 0}'):
        (tmp_path / "vocab.json").write_text(text)
        with pytest.raises(ValueError, match="does not give each token a number from 0 on"):
            read_tokenizer(tmp_path)
    with pytest.raises(ValueError, match=r"vocab.json does not give each token a number from 0 on"):
        read_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"add_prefix_space": true}')
    with pytest.raises(ValueError, match="add_prefix_space is on, which is not supported"):
        read_tokenizer(tmp_path)


# --- configuration of older files ----------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "map_", "specials", "before"),
    [
        ({}, None, {END: 300}, ()),
        ({"add_bos_token": True}, None, {END: 300}, (300,)),
        ({"add_bos_token": True, "bos_token": "<s>"}, None, {END: 300, "<s>": 301}, (301,)),
        (
            {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<s>"},
            None,
            {"<s>": 301, "</s>": 302},
            (),
        ),
        ({}, {"bos_token": "<s>", "pad_token": "</s>"}, {END: 300, "<s>": 301, "</s>": 302}, ()),
    ],
)
def test_special_tokens_of_gpt2_files_match_transformers(
    transformers, pairs, strange_texts, tmp_path, config, map_, specials, before
):
    tokens = (*pairs.spec.vocabulary, END, "<s>", "</s>")
    write_gpt2(tmp_path, BytePairSpec(tokens, pairs.spec.merges))
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    if map_ is not None:
        (tmp_path / "special_tokens_map.json").write_text(json.dumps(map_))
    ours, theirs = read_tokenizer(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (ours.specials, ours.prefix_ids) == (specials, before)
    for text in (*strange_texts, f"<s>a{END}</s>"):
        assert [*before, *ours.encode_with_specials(text).tolist()] == theirs.encode(text), repr(
            text
        )


@pytest.mark.parametrize("config", [None, {"tokenizer_class": "Qwen2Tokenizer"}])
@pytest.mark.parametrize("kind", ["qwen2", "qwen3"])
def test_qwen_vocab_and_merges_match_transformers(
    transformers, ended, strange_texts, tmp_path, kind, config
):
    write_gpt2(tmp_path, ended.spec)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours, theirs = read_tokenizer(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (ours.spec.pattern, ours.specials, ours.prefix_ids) == ("qwen2", {END: 300}, ())
    agree_as_gpt2(ours, theirs, (*strange_texts, "e\u0301 12345 I'LL", f"x{END}\u212b"))


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("tokenizer_config", "not JSON", "tokenizer_config.json is not valid JSON"),
        ("tokenizer_config", '{"add_eos_token": true}', "add_eos_token is on, which is not"),
        ("tokenizer_config", '{"bos_token": "<s>"}', "'<s>' is named as a special token, but voc"),
        (
            "tokenizer_config",
            '{"tokenizer_class": "RobertaTokenizer"}',
            "tokenizer_class is 'RobertaTokenizer', but a folder of vocab.json and merges.txt",
        ),
        ("added_tokens", '{"hello": 5}', "the added token 'hello' is none of the special tokens"),
    ],
)
def test_rejects_unsupported_config_of_gpt2_files(ended, tmp_path, name, content, sentence):
    write_gpt2(tmp_path, ended.spec)
    (tmp_path / f"{name}.json").write_text(content)
    with pytest.raises(ValueError, match=sentence):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"cls_token": "[SEP]"}, r"cls_token is '\[SEP\]', but only '\[CLS\]' is supported"),
        ({"unk_token": "[PAD]"}, r"unk_token is '\[PAD\]', but only '\[UNK\]' is supported"),
        ({"strip_accents": "x"}, "strip_accents is 'x', but it must be true or false"),
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "but a vocab.txt is read as BertTokenizer"),
        ({"bos_token": "<s>"}, "'<s>' is named as a special token, but vocab.txt does not have"),
    ],
)
def test_rejects_unsupported_config_of_bert_file(pieces, tmp_path, config, sentence):
    (tmp_path / "vocab.txt").write_text("\n".join(pieces.spec.vocabulary))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=sentence):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["source.spm", "target.spm"])
def test_rejects_pipe_instead_of_file(tmp_path, name):
    for each in ("source.spm", "target.spm"):
        (tmp_path / each).write_bytes(b"x")
    (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match=f"{name} is not a regular file"):
        read_tokenizer(tmp_path)


def test_rejects_invalid_vocab_txt(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"vocab.txt is not UTF-8 text"):
        read_tokenizer(tmp_path)
    (tmp_path / "vocab.txt").write_text("[PAD]\na\n")
    with pytest.raises(ValueError, match="special tokens are not in the vocabulary"):
        read_tokenizer(tmp_path)
