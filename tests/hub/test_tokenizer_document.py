"""tokenizer.json and the files beside it: same ids as AutoTokenizer, or rejected."""

import copy
import json
import re

import pytest

from clearformer.hub.tokenizer_document import BYTES
from clearformer.hub.tokenizer_files import read_tokenizer, write_tokenizer
from clearformer.text import ByteFallbackPairs, BytePairs, Bytes, WordPieces, from_json, sha256
from clearformer.text.byte_fallback import BYTES as FALLBACK
from clearformer.text.byte_fallback import FallbackSpec
from clearformer.text.specs import BytePairSpec

END = "<|endoftext|>"
TEXTS = ("Hello world's", f"a{END}b", " lead", "'S I'LL  \n\nx", "<s>hi</s>", "[mask] [MASK] Café")


@pytest.fixture(scope="module")
def ended(pairs):
    parts = pairs.spec
    return BytePairs(BytePairSpec((*parts.vocabulary, END), parts.merges, specials=(END,)))


@pytest.fixture(scope="module")
def fallback():
    tokens = ("<unk>", "<s>", "</s>", *FALLBACK, "▁", "t", "▁t")
    return ByteFallbackPairs(FallbackSpec(tokens, (("▁", "t"),), specials=("<unk>", "<s>", "</s>")))


@pytest.fixture
def folder(tmp_path):
    """A folder with this tokenizer.json, changed at some places, and these files beside it."""

    def write(tokenizer, config=None, changes=None, model=None):
        document = copy.deepcopy(tokenizer.document)
        if isinstance(tokenizer, WordPieces):
            document["post_processor"] = around(["[CLS]"], ["[SEP]"], tokenizer.specials)
        document.update(changes or {})
        for stage in ("truncation", "padding", "normalizer", "post_processor"):
            document.setdefault(stage)
        (tmp_path / "tokenizer.json").write_text(json.dumps(document))
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config or {}))
        (tmp_path / "config.json").write_text(json.dumps(model or {}))
        return tmp_path

    return write


def around(before, after, ids):
    def marks(names):
        return [{"SpecialToken": {"id": name, "type_id": 0}} for name in names]

    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [*marks(before), text, *marks(after)],
        "pair": [*marks(before), text, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {
            name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in (*before, *after)
        },
    }


def agree(transformers, place):
    ours, theirs = read_tokenizer(place), transformers.AutoTokenizer.from_pretrained(place)
    for text in TEXTS:
        row = [*ours.prefix_ids, *ours.encode_with_specials(text).tolist(), *ours.suffix_ids]
        assert row == theirs.encode(text), text
    return ours


def refuses(place, sentence):
    with pytest.raises(ValueError, match=re.escape(f"{place}: its tokenizer: ") + sentence):
        read_tokenizer(place)


# --- byte pairs ----------------------------------------------------------------------------


@pytest.mark.parametrize("opener", ["GPT2Tokenizer", "PreTrainedTokenizerFast"])
def test_usual_config_keys_do_not_change_ids(transformers, ended, folder, opener):
    usual = {
        "tokenizer_class": opener, "add_prefix_space": False, "add_bos_token": True,
        "model_max_length": 64, "bos_token": END,
        "eos_token": {"__type": "AddedToken", "content": END},
        "added_tokens_decoder": {"300": {"content": END, "special": True, "normalized": True}},
        "errors": "replace", "clean_up_tokenization_spaces": True,
    }  # fmt: skip
    agree(transformers, folder(ended, usual, model={"model_type": "gpt2"}))


def test_role_marks_token_as_special(transformers, pairs, folder):
    ours = BytePairs(BytePairSpec((*pairs.spec.vocabulary, "<s>"), pairs.spec.merges, specials=()))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>"}
    place = folder(ours, config, model={"model_type": "llama"})
    assert agree(transformers, place).specials == {"<s>": 300}


@pytest.mark.parametrize("kind", ["gpt2", "llama", None])
def test_rejects_eos_suffix_except_for_translators(ended, fallback, folder, kind):
    model = {"model_type": kind, "eos_token_id": 300}
    post = around([], [END], {END: 300})
    sentence = ".* but only special tokens before the text are supported"
    refuses(folder(ended, {}, {"post_processor": post}, model), sentence)
    post = around([], ["</s>"], {"</s>": 2})
    config = {"tokenizer_class": "LlamaTokenizer"}
    refuses(folder(fallback, config, {"post_processor": post}), sentence)


def test_translator_suffix_must_be_its_eos_token(ended, folder):
    post = {"post_processor": around([], [END], {END: 300})}
    model = {"model_type": "marian", "eos_token_id": 300}
    assert read_tokenizer(folder(ended, {}, post, model)).suffix_ids == ()
    refuses(folder(ended, {}, post, {**model, "eos_token_id": 299}), ".*tokens before the text")
    garbage = {"type": "TemplateProcessing", "single": [{"Sequence": {}}, {"SpecialToken": {}}]}
    place = folder(ended, {}, {"post_processor": garbage}, model)
    refuses(place, ".* but only special tokens around one text are supported")


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"add_prefix_space": True}, ".*sets add_prefix_space to True, .* says False"),
        ({"extra_special_tokens": ["don't"]}, '"don\'t" is named as a special token, but'),
        ({"additional_special_tokens": ["<x>"]}, "'<x>' is named as a special token, but"),
        ({"split_special_tokens": True}, "split_special_tokens is on"),
        ({"tokenizer_class": "BertTokenizer"}, "tokenizer_class is 'BertTokenizer', but a byte"),
        ({"tokenizer_class": "Qwen2Tokenizer"}, ".*splits by the pattern qwen2 with the"),
        (
            {"added_tokens_decoder": {"5": {"content": "&", "special": True}}},
            "the added token '&' differs between tokenizer.json and the files beside it",
        ),
        (
            {"added_tokens_decoder": {"5": {"content": END, "special": True}}},
            "the added token '.*' differs between tokenizer.json and the files beside it",
        ),
    ],
)
def test_rejects_unsupported_byte_pair_settings(ended, folder, config, sentence):
    refuses(folder(ended, config), sentence)


def test_gpt2_class_requires_gpt2_pattern(pairs, folder):
    for other in ({"pattern": "llama3"}, {"ignore_merges": True}):
        parts = BytePairSpec(pairs.spec.vocabulary, pairs.spec.merges, **other)
        place = folder(BytePairs(parts), {"tokenizer_class": "GPT2Tokenizer"})
        refuses(place, "tokenizer_class is 'GPT2Tokenizer', which splits by the pattern gpt2")
        place = folder(BytePairs(parts), {"tokenizer_class": "PreTrainedTokenizerFast"})
        assert read_tokenizer(place).spec == parts


def test_byte_vocabulary_is_read_as_bytes_tokenizer(folder):
    assert read_tokenizer(folder(BytePairs(BYTES))).kind == Bytes.kind


def test_rejects_invalid_tokenizer_config(ended, folder):
    place = folder(ended)
    (place / "tokenizer_config.json").write_text("not JSON")
    with pytest.raises(ValueError, match=r"tokenizer_config.json is not valid JSON"):
        read_tokenizer(place)


def test_rejects_number_with_thousands_of_digits(ended, folder):
    place = folder(ended)
    (place / "tokenizer.json").write_text('{"model": ' + "1" * 5000 + "}")
    with pytest.raises(ValueError, match=r"tokenizer.json has a number of thousands of digits"):
        read_tokenizer(place)


def test_add_prefix_space_must_agree_with_tokenizer_json(fallback, folder):
    config = {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": True}
    assert read_tokenizer(folder(fallback, config)).spec == fallback.spec
    place = folder(fallback, {**config, "add_prefix_space": False})
    refuses(place, ".*sets add_prefix_space to False, and tokenizer.json says True: they contra")


def test_normalized_special_tokens_depend_on_class(fallback, folder):
    added = [{**token, "normalized": True} for token in fallback.document["added_tokens"]]
    place = folder(fallback, {"tokenizer_class": "LlamaTokenizer"}, {"added_tokens": added})
    assert read_tokenizer(place).spec == fallback.spec
    place = folder(
        fallback, {"tokenizer_class": "PreTrainedTokenizerFast"}, {"added_tokens": added}
    )
    refuses(place, "the special token '<unk>' has normalized on, which is not supported")


@pytest.mark.parametrize("name", ["ended", "pieces"])
def test_infers_missing_model_type(transformers, request, folder, name):
    ours = request.getfixturevalue(name)
    model = {key: value for key, value in ours.document["model"].items() if key != "type"}
    kind = {"model_type": "bert" if name == "pieces" else "gpt2"}
    assert agree(transformers, folder(ours, {}, {"model": model}, kind)).spec == ours.spec


# --- Qwen ----------------------------------------------------------------------------------

QWEN = (END, "<|im_start|>", "<|im_end|>")
WORDS = ("<tool_call>", "<think>", "</think>")
COMPOSED = (
    "e\u0301 \u212b a\u030a", "<think>12345</think>", "I'LL <tool_call>\n\nx",
    "<|im_start|>user\nhi<|im_end|>",
    "<thinke\u0301", "\u212a<think>\u0301", "<|no token|>",
)  # fmt: skip


@pytest.fixture(scope="module")
def qwen(pairs):
    tokens = (*pairs.spec.vocabulary, *QWEN, *WORDS)
    return BytePairs(
        BytePairSpec(
            tokens, pairs.spec.merges, "qwen2", specials=QWEN, added=WORDS, normal_form="NFC"
        )
    )


def as_published(qwen):
    """What Qwen's own files say: added tokens stand beside the vocabulary, stages are explicit."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    document = copy.deepcopy(qwen.document)
    for name in (*QWEN, *WORDS):
        del document["model"]["vocab"][name]
    model = {
        "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
        "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False,
    }  # fmt: skip
    changes = {
        "model": {**document["model"], **model},
        "post_processor": {**level, "use_regex": False},
        "decoder": {**level, "use_regex": False},
    }
    config = {
        "tokenizer_class": "Qwen2Tokenizer", "add_bos_token": False, "add_prefix_space": False,
        "bos_token": None, "eos_token": "<|im_end|>", "pad_token": END, "unk_token": None,
        "additional_special_tokens": ["<|im_start|>", "<|im_end|>"], "errors": "replace",
        "split_special_tokens": False, "clean_up_tokenization_spaces": False,
        "added_tokens_decoder": {
            str(token["id"]): {key: value for key, value in token.items() if key != "id"}
            for token in document["added_tokens"]
        },
    }  # fmt: skip
    return config, changes


@pytest.mark.parametrize("kind", ["qwen2", "qwen3"])
def test_qwen_files_match_transformers(transformers, qwen, folder, strange_texts, kind):
    config, changes = as_published(qwen)
    place = folder(qwen, config, changes, {"model_type": kind, "vocab_size": 384})
    ours = agree(transformers, place)
    theirs = transformers.AutoTokenizer.from_pretrained(place)
    for text in (*COMPOSED, *strange_texts):
        assert ours.encode_with_specials(text).tolist() == theirs.encode(text), repr(text)
        plain = theirs.encode(text, split_special_tokens=True)
        assert ours.encode(text).tolist() == plain, repr(text)
        assert ours.decode(plain) == theirs.decode(plain)
    assert (len(theirs), ours.size) == (306, 384)
    assert ours.pieces([306]) == ["<|no token 306|>"]


def test_pads_vocabulary_only_for_qwen(qwen, folder):
    config, changes = as_published(qwen)
    for rows in (306, 385, 1024, "384", None):
        model = {"model_type": "qwen2", "vocab_size": rows}
        assert read_tokenizer(folder(qwen, config, changes, model)).size == 306
    model = {"model_type": "llama", "vocab_size": 384}
    assert read_tokenizer(folder(qwen, config, changes, model)).size == 306


def test_padded_vocabulary_round_trip(qwen, folder):
    config, changes = as_published(qwen)
    place = folder(qwen, config, changes, {"model_type": "qwen2", "vocab_size": 384})
    ours = read_tokenizer(place)
    assert sha256(from_json(json.loads(json.dumps(ours.to_json())))) == sha256(ours)
    write_tokenizer(ours, place, 64)
    assert sha256(read_tokenizer(place)) == sha256(ours)


# --- WordPiece -----------------------------------------------------------------------------


def test_bert_config_matches_transformers(transformers, pieces, folder):
    config = {
        "tokenizer_class": "BertTokenizer", "do_lower_case": True, "strip_accents": None,
        "tokenize_chinese_chars": True, "cls_token": "[CLS]", "sep_token": "[SEP]",
        "pad_token": "[PAD]", "mask_token": "[MASK]", "unk_token": "[UNK]", "never_split": None,
        "do_basic_tokenize": True, "model_max_length": 512,
    }  # fmt: skip
    agree(transformers, folder(pieces, config, model={"model_type": "bert"}))
    # The class puts its marks around a text by itself.
    bare = folder(pieces, config, {"post_processor": None}, {"model_type": "bert"})
    agree(transformers, bare)


@pytest.mark.parametrize(
    ("config", "changes", "sentence"),
    [
        ({}, {"post_processor": None}, r"post_processor is null, so \[CLS\] and \[SEP\] would"),
        ({"do_lower_case": False}, {}, ".*sets do_lower_case to False"),
        ({"strip_accents": False}, {}, ".*sets strip_accents to False"),
        ({"tokenize_chinese_chars": False}, {}, ".*sets tokenize_chinese_chars to False"),
        ({"do_lower_case": "no"}, {}, "do_lower_case is 'no', but it must be true or false"),
        ({"cls_token": "[SEP]"}, {}, r"cls_token is '\[SEP\]', but only '\[CLS\]' is supported"),
        ({"mask_token": "[PAD]"}, {}, r"mask_token is '\[PAD\]', but only '\[MASK\]' is support"),
        ({"tokenizer_class": "GPT2Tokenizer"}, {}, "tokenizer_class is 'GPT2Tokenizer', but a W"),
    ],
)
def test_rejects_unsupported_word_piece_settings(pieces, folder, config, changes, sentence):
    refuses(folder(pieces, config, changes), sentence)


@pytest.mark.parametrize("opener", ["BertTokenizer", "PreTrainedTokenizerFast"])
@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"lowercase": False}, "do_lower_case"),
        ({"strip_accents": False}, "strip_accents"),
        ({"handle_chinese_chars": False}, "tokenize_chinese_chars"),
    ],
)
def test_bert_class_requires_its_normalizer(transformers, pieces, folder, opener, changes, name):
    normalizer = {"normalizer": {**pieces.document["normalizer"], **changes}}
    place = folder(pieces, {"tokenizer_class": opener}, normalizer, {"model_type": "bert"})
    if opener == "BertTokenizer":
        refuses(place, f".*sets {name} to True, explicitly or by its class")
    else:
        agree(transformers, place)
    said = {"tokenizer_class": opener, name: False}
    agree(transformers, folder(pieces, said, normalizer, {"model_type": "bert"}))
