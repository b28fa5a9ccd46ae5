"""tokenizer_config.json and its companions: tokenizer class, special tokens and flags."""

import json
import re

import pytest

from clearformer.hub.tokenizer_config import (
    BERT,
    END,
    GENERIC,
    GPT2,
    LLAMA,
    QWEN2,
    read_object,
    read_tokenizer_config,
)


@pytest.fixture
def beside(tmp_path):
    """The settings in a folder with these files."""

    def read(settings=None, /, **files):
        written = {"tokenizer_config": settings, **files}
        for name, content in written.items():
            if content is not None:
                (tmp_path / f"{name}.json").write_text(json.dumps(content))
        return read_tokenizer_config(tmp_path)

    return read


@pytest.mark.parametrize(
    ("named", "model", "expected"),
    [
        ("GPT2Tokenizer", None, GPT2),
        ("GPT2TokenizerFast", "llama", GPT2),
        ("BertTokenizerFast", "bert", BERT),
        ("LlamaTokenizer", "llama", LLAMA),
        ("Qwen2Tokenizer", "qwen3", QWEN2),
        ("PreTrainedTokenizerFast", "gpt2", GENERIC),
        ("PreTrainedTokenizerFast", "qwen2", GENERIC),
        ("TokenizersBackend", "bert", GENERIC),
        ("GPT2Tokenizer", "qwen2", QWEN2),
        ("RobertaTokenizer", "bert", "RobertaTokenizer"),
        (None, "gpt2", GPT2),
        (None, "bert", BERT),
        (None, "qwen3", QWEN2),
        (None, "llama", None),
        (None, None, None),
    ],
)
def test_resolves_tokenizer_class(beside, named, model, expected):
    config = {} if named is None else {"tokenizer_class": named}
    assert beside(config, config={"model_type": model}).tokenizer_class == expected


def test_config_may_name_tokenizer_class(beside):
    assert beside(config={"tokenizer_class": "LlamaTokenizer"}).tokenizer_class == LLAMA


def test_special_token_roles_are_strings_or_objects(beside):
    token = {"__type": "AddedToken", "content": "</s>", "lstrip": False, "normalized": True}
    settings = beside(
        {"bos_token": "<s>", "eos_token": token, "pad_token": None, "add_bos_token": True},
        special_tokens_map={"bos_token": "<b>", "additional_special_tokens": ["<x>"]},
    )
    assert settings.roles == {"bos_token": "<b>", "eos_token": "</s>", "pad_token": None}
    assert settings.others == ("<x>",)
    ids = {"<b>": 0, "</s>": 1, "<x>": 2}
    assert settings.special(ids, "vocab.json") == ("<b>", "</s>", "<x>")
    with pytest.raises(ValueError, match=re.escape("'<x>' is named as a special token, but voc")):
        settings.special({"<b>": 0, "</s>": 1}, "vocab.json")


def test_tokenizer_class_adds_default_special_tokens(beside):
    settings = beside({"tokenizer_class": GPT2, "bos_token": "<s>", "unk_token": None})
    assert settings.special({"<s>": 0, END: 1}, "vocab.json") == (END, "<s>")  # eos_token is END
    assert settings.special({"<s>": 0}, "vocab.json") == ("<s>",)


def test_added_tokens_decoder_overrides_older_files(beside):
    files = {"special_tokens_map": {"bos_token": "<b>"}, "added_tokens": {"<b>": 7}}
    assert beside({}, **files).added == {"<b>": {"content": "<b>", "id": 7}}
    newer = {"added_tokens_decoder": {"3": {"content": "<s>", "special": True}}}
    settings = beside(newer, **files)
    assert settings.roles == {}
    assert settings.added == {"<s>": {"content": "<s>", "special": True, "id": 3}}


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"split_special_tokens": True}, "split_special_tokens is on, which is not supported"),
        (
            {"split_special_tokens": "x"},
            "split_special_tokens is 'x', but it must be true or false",
        ),
        ({"tokenizer_class": 5}, "tokenizer_class is 5, but it must be a name"),
        ({"bos_token": ""}, "bos_token is '', but it must be a token"),
        ({"bos_token": {"content": 5}}, "bos_token is {'content': 5}, but it must be a token"),
        ({"bos_token": {"content": "a", "lstrip": True}}, "bos_token has lstrip on, which is not"),
        ({"extra_special_tokens": 5}, "extra_special_tokens is 5, but it must be a list of tokens"),
        ({"extra_special_tokens": [5]}, "extra_special_tokens is 5, but it must be a token"),
        ({"added_tokens_decoder": []}, "added_tokens_decoder is [], but it must list tokens by id"),
        (
            {"added_tokens_decoder": {"x": {"content": "a"}}},
            "added_tokens_decoder has the id 'x', which is not a number",
        ),
    ],
)
def test_rejects_unsupported_config(beside, config, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        beside(config)


def test_rejects_flag_that_contradicts_tokenizer_json(beside):
    settings = beside({"add_prefix_space": True, "do_lower_case": None})
    settings.require_flag("add_prefix_space", True)
    settings.require_flag("do_lower_case", True)
    sentence = "tokenizer_config.json sets add_prefix_space to True, and tokenizer.json says False"
    with pytest.raises(ValueError, match=f"{sentence}: they contradict, so correct"):
        settings.require_flag("add_prefix_space", False)
    assert settings.flag_or("do_lower_case", False) is False
    assert settings.flag_or("add_prefix_space", False) is True
    with pytest.raises(ValueError, match="add_prefix_space is on, which is not supported"):
        settings.refuse("do_lower_case", "add_prefix_space")


def test_read_object_rejects_other_json(tmp_path):
    assert read_object(tmp_path / "a.json") == {}
    (tmp_path / "a.json").write_text("[1]")
    with pytest.raises(ValueError, match=r"a.json is \[1\], but it must be an object"):
        read_object(tmp_path / "a.json")
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(ValueError, match=r"a.json is not valid JSON"):
        read_object(tmp_path / "a.json")
