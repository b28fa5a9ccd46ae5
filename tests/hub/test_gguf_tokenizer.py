"""Tokenizers in GGUF files: the same after writing and reading, and others refused."""

import pytest

from clearformer.hub.gguf_tokenizer import (
    KEY,
    TEMPLATE,
    read_end_ids,
    read_template,
    read_tokenizer,
    write_tokenizer,
)
from clearformer.text import ByteFallbackPairs, BytePairs, Bytes, Characters, sha256
from clearformer.text.byte_fallback import BYTES, FallbackSpec
from clearformer.text.chat_template import ChatTemplate
from clearformer.text.specs import BytePairSpec

END, BEGIN = "<|endoftext|>", "<s>"


@pytest.fixture(scope="session")
def kinds(pairs):
    vocabulary, merges = pairs.spec.vocabulary, pairs.spec.merges

    def other(*arguments, **named):
        return BytePairs(BytePairSpec((*vocabulary, END, BEGIN), merges, *arguments, **named))

    words = ("▁", "a", "b", "c", "ab", "▁a", "▁ab", "bc", "abc")
    joined = (
        ("▁", "a"),
        ("a", "b"),
        ("▁a", "b"),
        ("▁", "ab"),
        ("b", "c"),
        ("a", "bc"),
        ("ab", "c"),
    )
    fallback = FallbackSpec(
        ("<unk>", BEGIN, "</s>", *BYTES, *words), joined, specials=("<unk>", BEGIN, "</s>"),
        prefix=(BEGIN,),
    )  # fmt: skip
    return {
        "bytes": Bytes(),
        "own": pairs,
        "gpt2": other("gpt2", specials=(END, BEGIN)),
        "llama3": other("llama3", True, (END, BEGIN), (BEGIN,)),
        "qwen2": other("qwen2", specials=(END,), added=(BEGIN,)),
        "fallback": ByteFallbackPairs(fallback),
    }


@pytest.mark.parametrize("kind", ["bytes", "own", "gpt2", "llama3", "qwen2", "fallback"])
def test_tokenizer_comes_back(kinds, strange_texts, kind):
    ours = kinds[kind]
    ends = [] if kind in ("bytes", "own") else [ours.size - 2]
    keys, notes = write_tokenizer(ours, ends, None)
    assert (notes == ()) == bool(ends)
    again = read_tokenizer(keys)
    assert read_end_ids(keys, ours.size) == tuple(ends)
    assert again.prefix_ids == ours.prefix_ids
    if kind != "fallback":  # the order of merges that make one token may differ
        assert sha256(again) == sha256(ours)
    for text in strange_texts:
        assert again.encode(text).tolist() == ours.encode(text).tolist(), text


def test_model_without_end_token_gets_one_that_no_text_has(kinds):
    keys, notes = write_tokenizer(kinds["own"], [], None)
    token = keys[f"{KEY}eos_token_id"]
    assert kinds["own"].spec.vocabulary[token] == "ÿ"
    assert "the byte 0xFF, which no text has" in notes[0]
    assert keys[f"{KEY}bos_token_id"] == token
    assert not keys[f"{KEY}add_bos_token"]
    many, notes = write_tokenizer(kinds["own"], [1, 2, 3, 4], None)
    assert [many[KEY + n] for n in ("eos_token_id", "eot_token_id", "eom_token_id")] == [1, 2, 3]
    assert notes == ("4 tokens end a text, and the file names 3 of them",)


def test_template_comes_back(kinds):
    template = ChatTemplate(source="{{ messages[0].content }}", bos_token=BEGIN, eos_token=END)
    keys, _ = write_tokenizer(kinds["llama3"], [kinds["llama3"].specials[END]], template)
    assert read_template(keys) == (template, ())
    assert read_template({}) == (None, ())
    found, notes = read_template({**keys, TEMPLATE: "{% for %}"})
    assert found is None
    assert notes[0].startswith("left out, its chat template: ")
    bare, _ = write_tokenizer(kinds["own"], [], ChatTemplate())
    assert read_template(bare)[0] == ChatTemplate()


def test_tokenizers_that_llama_cpp_lacks(kinds):
    with pytest.raises(ValueError, match=r"llama.cpp has no characters tokenizer, only bytes, bpe"):
        write_tokenizer(Characters.train(["abc"]), [], None)
    spec = kinds["own"].spec
    odd = BytePairs(BytePairSpec(spec.vocabulary, spec.merges, "llama3", False))
    with pytest.raises(
        ValueError, match=r"llama.cpp looks whole words up .* unlike this tokenizer"
    ):
        write_tokenizer(odd, [], None)
    composed = BytePairs(BytePairSpec(spec.vocabulary, spec.merges, "qwen2", normal_form="NFC"))
    assert "does not normalize text to NFC" in write_tokenizer(composed, [1], None)[1][0]


@pytest.mark.parametrize(
    ("kind", "changes", "sentence"),
    [
        ("gpt2", {"model": "bert"}, r"its tokenizer is 'bert', but clearformer reads gpt2"),
        ("gpt2", {"model": None}, r"its tokenizer is None"),
        ("gpt2", {"pre": "olmo"}, r"its tokenizer splits text as 'olmo', but clearformer knows"),
        ("gpt2", {"pre": ["gpt-2"]}, r"its tokenizer splits text as \['gpt-2'\]"),
        ("gpt2", {"tokens": None}, r"tokens must be a list of str, but it is missing"),
        ("gpt2", {"tokens": [1, 2]}, r"tokens must be a list of str, but it is something else"),
        ("gpt2", {"tokens": ["x" * 2000]}, r"a token has more than 1,024 letters"),
        ("gpt2", {"token_type": [1]}, r"tokens, but 1 types of tokens"),
        ("gpt2", {"merges": ["a b c"]}, r"it has the merge 'a b c', but a merge has two parts"),
        ("gpt2", {"merges": ["a zzz"]}, r"the merge of 'a' and 'zzz' needs 'zzz'"),
        ("gpt2", {"add_eos_token": True}, r"add_eos_token is true, which is not supported"),
        ("llama3", {"bos_token_id": 10**6}, r"bos_token_id is 1000000, but the ids are 0 to"),
        ("fallback", {"scores": [0.0]}, r"but not as many finite scores"),
        ("fallback", {"scores": None}, r"scores must be a list of float"),
        ("fallback", {"add_space_prefix": False}, r"add_space_prefix is not true"),
    ],
)
def test_damaged_tokenizer_is_refused(kinds, kind, changes, sentence):
    keys, _ = write_tokenizer(kinds[kind], [0], None)
    keys |= {KEY + name: value for name, value in changes.items()}
    keys = {key: value for key, value in keys.items() if value is not None}
    with pytest.raises(ValueError, match=sentence):
        read_tokenizer(keys)


def test_scores_that_are_not_numbers(kinds):
    keys, _ = write_tokenizer(kinds["fallback"], [2], None)
    keys[f"{KEY}scores"] = [float("nan")] * len(keys[f"{KEY}scores"])
    with pytest.raises(ValueError, match="finite scores"):
        read_tokenizer(keys)
    with pytest.raises(ValueError, match=r"eos_token_id is 'x', but the ids are 0 to 9"):
        read_end_ids({f"{KEY}eos_token_id": "x"}, 10)


def test_large_vocabulary_with_scores_is_refused(kinds, monkeypatch):
    from clearformer.hub import gguf_tokenizer

    monkeypatch.setattr(gguf_tokenizer, "MAX_VOCABULARY_LETTERS", 100)
    keys, _ = write_tokenizer(kinds["fallback"], [2], None)
    with pytest.raises(ValueError, match="but at most 100 are read"):
        read_tokenizer(keys)
