"""tokenizer.json documents: supported ones round-trip, anything else is rejected by name."""

import copy
import json
import random
import re

import pytest

from clearformer.text.hf_tokenizers import (
    open_library,
    read_byte_pairs,
    read_word_pieces,
    write_byte_pairs,
    write_word_pieces,
)
from clearformer.text.specs import PATTERNS, BytePairSpec, WordPieceSpec
from clearformer.text.subwords import BytePairs, WordPieces


@pytest.fixture(scope="module")
def pairs(prose):
    return BytePairs.train([prose], 300)


@pytest.fixture(scope="module")
def pieces(prose):
    return WordPieces.train([prose], 300)


def test_read_write_round_trip(pairs, pieces):
    for pattern in PATTERNS:
        parts = BytePairSpec(
            (*pairs.spec.vocabulary, "<|end|>"), pairs.spec.merges, pattern, True, ("<|end|>",)
        )
        assert read_byte_pairs(json.loads(json.dumps(write_byte_pairs(parts)))) == parts
        parts = BytePairSpec(
            (*pairs.spec.vocabulary, "<word>"),
            pairs.spec.merges,
            added=("<word>",),
            normal_form="NFC",
        )
        assert read_byte_pairs(json.loads(json.dumps(write_byte_pairs(parts)))) == parts
    parts = WordPieceSpec(pieces.spec.vocabulary, lowercase=False, strip_accents=True)
    assert read_word_pieces(json.loads(json.dumps(write_word_pieces(parts)))) == parts


def test_reads_documents_written_by_tokenizers_library(pairs, pieces):
    """Settings that the library adds are off, or supported."""
    assert read_byte_pairs(json.loads(open_library(pairs.document).to_str())) == pairs.spec
    assert read_word_pieces(json.loads(open_library(pieces.document).to_str())) == pieces.spec


def test_merges_may_be_strings(pairs):
    data = copy.deepcopy(pairs.document)
    data["model"]["merges"] = [" ".join(merge) for merge in data["model"]["merges"]]
    assert read_byte_pairs(data) == pairs.spec


def test_missing_use_regex_defaults_to_gpt2_pattern(pairs):
    data = copy.deepcopy(pairs.document)
    del data["pre_tokenizer"]["use_regex"]
    assert read_byte_pairs(data) == pairs.spec
    parts = BytePairSpec(pairs.spec.vocabulary, pairs.spec.merges, "llama3")
    data = copy.deepcopy(write_byte_pairs(parts))
    del data["pre_tokenizer"]["pretokenizers"][1]["use_regex"]  # which would split once more
    with pytest.raises(ValueError, match="use_regex is None, but only False is supported"):
        read_byte_pairs(data)


def set_in(data, path, value):
    data = copy.deepcopy(data)
    *way, last = path.split(".")
    inner = data
    for key in way:
        inner = inner[key]
    inner[last] = value
    return data


def splitting(regex):
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    return {"type": "Sequence", "pretokenizers": [split, level]}


EVIL = ["(a+)+$", "(x|x)*y", "", PATTERNS["gpt2"] + "|(a*)*b", "(?=(a+))+"]


@pytest.mark.parametrize("regex", EVIL)
def test_rejects_unknown_split_pattern(pairs, regex):
    sentence = (
        f"pre_tokenizer splits by the pattern {regex!r:.120}, which is not one of the published "
        f"ones (gpt2, llama3, qwen2): an unknown pattern may hang for ever"
    )
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read_byte_pairs(set_in(pairs.document, "pre_tokenizer", splitting(regex)))


def test_accepts_known_split_patterns(pairs):
    for name, regex in PATTERNS.items():
        data = set_in(pairs.document, "pre_tokenizer", splitting(regex))
        assert read_byte_pairs(data).pattern == name


PAIR_DAMAGE = [
    (
        "normalizer",
        {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""},
        "normalizer is {'type': 'Replace'",
    ),
    (
        "truncation",
        {"max_length": 128},
        "truncation is {'max_length': 128}, which is not supported: "
        "clearformer would give other ids than the original tokenizer",
    ),
    ("padding", {"pad_id": 0}, "padding is {'pad_id': 0}, which is not supported"),
    ("model", None, "model is None, but it must be an object"),
    ("model.type", "Unigram", "model.type is 'Unigram', but only 'BPE' is supported"),
    ("model.dropout", 0.1, "model.dropout is 0.1, which is not supported"),
    ("model.byte_fallback", True, "model.byte_fallback is True, which is not supported"),
    (
        "model.end_of_word_suffix",
        "</w>",
        "model.end_of_word_suffix is '</w>', which is not supported",
    ),
    ("model.vocab", [], "model.vocab is [], but it must be an object"),
    ("model.vocab.!", 4_000_000_000, "the ids are not the numbers from 0 to 299, each once"),
    ("model.vocab.!", "0", "the ids are not the numbers from 0 to 299"),
    ("model.vocab.new", 5, "the ids are not the numbers from 0 to 300"),
    ("model.merges", {}, "model.merges is {}, but it must be a list"),
    ("model.merges", ["a b c"], "model.merges has 'a b c', but a merge has two tokens"),
    ("model.merges", [["a", 1]], "model.merges has ['a', 1], but a merge has two tokens"),
    (
        "model.merges",
        [["Q", "Z"]],
        "the merge of 'Q' and 'Z' needs 'QZ', which is not in the vocabulary",
    ),
    ("pre_tokenizer", None, "pre_tokenizer.type is None, but only 'ByteLevel' is supported"),
    (
        "pre_tokenizer.add_prefix_space",
        True,
        "pre_tokenizer.add_prefix_space is True, but only False is supported",
    ),
    ("pre_tokenizer.use_regex", 1, "pre_tokenizer.use_regex is 1, but only True is supported"),
    (
        "pre_tokenizer",
        {"type": "Sequence", "pretokenizers": []},
        "pre_tokenizer has 0 stages, but 2 are supported",
    ),
    (
        "post_processor",
        {"type": "RobertaProcessing"},
        "post_processor.type is 'RobertaProcessing', "
        "but only 'ByteLevel' or 'TemplateProcessing' is supported",
    ),
    (
        "post_processor",
        {
            "type": "TemplateProcessing",
            "single": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "</s>", "type_id": 0}},
            ],
        },
        "but only special tokens before the text are supported",
    ),
    (
        "added_tokens",
        [{"id": 300, "content": "x y", "special": False}],
        "the added token 'x y' is special or not one word of ASCII, which is not supported",
    ),
    (
        "added_tokens",
        [{"id": 300, "content": "x", "special": 1}],
        "added_tokens.special is 1, but only True or False is supported",
    ),
    ("normalizer", {"type": "NFKC"}, "normalizer is {'type': 'NFKC'}, which is not supported"),
    (
        "normalizer",
        {"type": "NFC", "turn": 1},
        "normalizer is {'type': 'NFC', 'turn': 1}, which is not supported",
    ),
    (
        "added_tokens",
        [{"id": 300, "content": "", "special": True}],
        "added_tokens has '', which is not a special token",
    ),
    (
        "added_tokens",
        [{"id": 3, "content": "!", "special": True}],
        "the special token '!' has two ids",
    ),
    (
        "added_tokens",
        [{"id": 300, "content": "<s>", "special": True, "lstrip": True}],
        "added_tokens.lstrip is True, which is not supported",
    ),
]


@pytest.mark.parametrize(
    ("path", "value", "sentence"), PAIR_DAMAGE, ids=lambda each: str(each)[:30]
)
def test_byte_pairs_reject_unsupported_settings(pairs, path, value, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        BytePairs.from_library(set_in(pairs.document, path, value))


PIECE_DAMAGE = [
    ("model.type", "BPE", "model.type is 'BPE', but only 'WordPiece' is supported"),
    ("model.unk_token", "<unk>", "model.unk_token is '<unk>', but only '[UNK]' is supported"),
    (
        "model.max_input_chars_per_word",
        10**9,
        "model.max_input_chars_per_word is 1000000000, but only 100 is supported",
    ),
    (
        "model.continuing_subword_prefix",
        "",
        "model.continuing_subword_prefix is '', but only '##' is supported",
    ),
    ("normalizer", None, "normalizer.type is None, but only 'BertNormalizer' is supported"),
    ("normalizer.clean_text", False, "normalizer.clean_text is False, but only True is supported"),
    (
        "normalizer.lowercase",
        "yes",
        "normalizer.lowercase is 'yes', but only True or False is supported",
    ),
    (
        "normalizer.handle_chinese_chars",
        1,
        "normalizer.handle_chinese_chars is 1, but only True or False is supported",
    ),
    (
        "normalizer.strip_accents",
        "no",
        "normalizer.strip_accents is 'no', but only None or True or False is supported",
    ),
    ("normalizer.turn", "x", "normalizer.turn is 'x', which is not supported"),
    ("pre_tokenizer.turn", "x", "pre_tokenizer.turn is 'x', which is not supported"),
    (
        "added_tokens",
        [{"id": 4, "content": "[MASK]", "special": True, "normalized": True}],
        "the special token '[MASK]' has normalized on, which is not supported: clearformer "
        "matches it in the original text",
    ),
    (
        "pre_tokenizer.type",
        "Whitespace",
        "pre_tokenizer.type is 'Whitespace', but only 'BertPreTokenizer' is supported",
    ),
    (
        "post_processor",
        {"type": "ByteLevel"},
        "post_processor.type is 'ByteLevel', "
        "but only 'TemplateProcessing' or 'BertProcessing' is supported",
    ),
    (
        "post_processor",
        {"type": "BertProcessing", "cls": ["[SEP]", 3], "sep": ["[CLS]", 2]},
        "post_processor puts ['[SEP]', 3] before a text and ['[CLS]', 2] after it, but only "
        "[CLS] and [SEP] are supported",
    ),
    ("added_tokens", [], "the special token [PAD] is missing: WordPiece needs it"),
    (
        "added_tokens",
        [{"id": 300, "content": "word", "special": False}],
        "added_tokens has 'word', which is not a special token",
    ),
]


@pytest.mark.parametrize(
    ("path", "value", "sentence"), PIECE_DAMAGE, ids=lambda each: str(each)[:30]
)
def test_word_pieces_reject_unsupported_settings(pieces, path, value, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        WordPieces.from_library(set_in(pieces.document, path, value))


def around(before, after, ids):
    def marks(names):
        return [{"SpecialToken": {"id": name, "type_id": 0}} for name in names]

    return {
        "type": "TemplateProcessing",
        "single": [*marks(before), {"Sequence": {"id": "A", "type_id": 0}}, *marks(after)],
        "pair": [],
        "special_tokens": {
            name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in (*before, *after)
        },
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [((), ()), ((), ("[SEP]",)), (("[CLS]",), ()), (("[PAD]",), ("[MASK]",))],
)
def test_word_pieces_require_cls_and_sep(pieces, before, after):
    right = set_in(pieces.document, "post_processor", around(["[CLS]"], ["[SEP]"], pieces.specials))
    assert read_word_pieces(right) == pieces.spec
    bert = {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]}
    assert read_word_pieces(set_in(pieces.document, "post_processor", bert)) == pieces.spec
    wrong = set_in(pieces.document, "post_processor", around(before, after, pieces.specials))
    sentence = f"puts {before!r} before a text and {after!r} after it, but only [CLS] and [SEP]"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read_word_pieces(wrong)


def test_template_ids_must_match_vocabulary(pieces, pairs):
    swapped = {**pieces.specials, "[CLS]": 4}
    with pytest.raises(ValueError, match=re.escape("gives '[CLS]' the ids [4], but the vocab")):
        read_word_pieces(
            set_in(pieces.document, "post_processor", around(["[CLS]"], ["[SEP]"], swapped))
        )
    marked = BytePairs(
        BytePairSpec((*pairs.spec.vocabulary, "<s>"), pairs.spec.merges, specials=("<s>",))
    )
    right = set_in(marked.document, "post_processor", around(["<s>"], [], {"<s>": 300}))
    assert read_byte_pairs(right).prefix == ("<s>",)
    wrong = set_in(marked.document, "post_processor", around(["<s>"], [], {"<s>": 7}))
    with pytest.raises(ValueError, match=re.escape("gives '<s>' the ids [7], but the vocabulary")):
        read_byte_pairs(wrong)


@pytest.mark.parametrize(
    "single",
    [
        [],
        [{"SpecialToken": {"id": "!", "type_id": 0}}],
        [{"Sequence": {}}, {"SpecialToken": {}}],
        [{"Sequence": {"id": "B", "type_id": 0}}],
        [{"Sequence": {"id": "A", "type_id": 1}}],
        [{"Sequence": {"id": "A", "type_id": 0}}] * 2,
        [{"SpecialToken": {"id": 5, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    ],
)
def test_template_must_contain_one_text(pairs, single):
    post = {"type": "TemplateProcessing", "single": single, "special_tokens": {}}
    with pytest.raises(ValueError, match="but only special tokens around one text are supported"):
        read_byte_pairs(set_in(pairs.document, "post_processor", post))


def test_accepts_normalized_special_tokens_without_normalizer(pairs):
    """As in GPT-2's own tokenizer.json."""
    added = [{"id": 300, "content": "<s>", "special": True, "normalized": True}]
    assert read_byte_pairs(set_in(pairs.document, "added_tokens", added)).specials == ("<s>",)


JUNK = [
    None,
    True,
    -1,
    0,
    1e300,
    "",
    "x",
    "(a+)+$",
    [],
    [1],
    {},
    {"type": "BPE"},
    [["a", "b"]],
    2**40,
]


def mutate(data, chance):
    """One place of a JSON value changed, removed, doubled or swapped."""
    data = copy.deepcopy(data)
    places = []

    def walk(value):
        if isinstance(value, dict | list):
            keys = list(value) if isinstance(value, dict) else range(len(value))
            for key in list(keys)[:6]:
                places.append((value, key))
                walk(value[key])

    walk(data)
    value, key = chance.choice(places)
    if chance.random() < 0.3:
        del value[key]
    else:
        value[key] = chance.choice(JUNK)
    return data


@pytest.mark.parametrize("kind", [BytePairs, WordPieces])
def test_fuzzed_documents_are_rejected_or_work(kind, pairs, pieces, capfd):
    """Never a panic of the library, which would write a trace past us to the terminal."""
    document = pairs.document if kind is BytePairs else pieces.document
    chance = random.Random(0)
    refused = []
    for _ in range(400):
        data = document
        for _ in range(chance.randrange(1, 4)):
            data = mutate(data, chance)
        try:
            tokenizer = kind.from_library(data)
        except ValueError as error:
            refused.append(str(error))
        else:
            ids = tokenizer.encode("The [MASK] says don't: 漢字 \U0010ffff")
            assert ids.max() < tokenizer.size
            tokenizer.decode(ids)
    assert len(refused) > 200
    assert not any("\n" in sentence for sentence in refused)
    assert capfd.readouterr() == ("", "")
