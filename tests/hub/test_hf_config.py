"""Reading a config.json key by key."""

import pytest

from clearformer.hub.hf_config import IGNORED_KEYS, NEUTRAL_VALUES, HFConfig


def test_values_and_defaults():
    settings = HFConfig({"n": 3, "x": 1, "on": True, "kind": "b", "none": None}, "here")
    assert settings.integer("n", 5) == 3
    assert settings.integer("none", 5, 4) == 4
    assert settings.number("x", 0.5) == 1.0
    assert settings.boolean("on", False) is True
    assert settings.choice("kind", {"a": 1, "b": 2}, "a") == 2
    settings.finish()


@pytest.mark.parametrize("value", [0, -1, 10**9, 1.5, True, "3", [3]])
def test_rejects_integer_out_of_range(value):
    with pytest.raises(ValueError, match=r"here: n is .*, but it must be a whole number from 1 to"):
        HFConfig({"n": value}, "here").integer("n", 65_536)


def test_rejects_missing_value():
    with pytest.raises(ValueError, match="here: n is None, but it must be a whole number"):
        HFConfig({}, "here").integer("n", 10)


@pytest.mark.parametrize("value", ["nan", float("nan"), float("inf"), 2.0, -0.1, True])
def test_rejects_number_outside_zero_to_one(value):
    with pytest.raises(ValueError, match=r"here: x is .*, but it must be a number from 0 to 1"):
        HFConfig({"x": value}, "here").number("x", 0.5)


def test_finish_lists_ignored_keys():
    settings = HFConfig({"new_trick": 0.5, "eos_token_ids": [1], "off": None, "n": 3}, "here")
    settings.integer("n", 5)
    settings.finish()
    assert settings.ignored == ["new_trick", "eos_token_ids"]
    settings.finish({"new_trick"})
    assert settings.ignored == ["eos_token_ids"]
    known = HFConfig(dict.fromkeys(IGNORED_KEYS, 1), "here")
    known.finish()
    assert known.ignored == []


def test_rename_accepts_alias_alone_or_equal():
    alone = HFConfig({"hidden_size": 3}, "here")
    alone.rename("hidden_size", "n_embd")
    assert alone.integer("n_embd", 5) == 3
    both = HFConfig({"hidden_size": 3, "n_embd": 3}, "here")
    both.rename("hidden_size", "n_embd")
    assert both.integer("n_embd", 5) == 3
    with pytest.raises(ValueError, match="hidden_size is 4, but n_embd says 3: they are one"):
        HFConfig({"hidden_size": 4, "n_embd": 3}, "here").rename("hidden_size", "n_embd")


REFERENCE = {
    "gpt2": "GPT2Config",
    "bert": "BertConfig",
    "llama": "LlamaConfig",
    "mistral": "MistralConfig",
    "qwen2": "Qwen2Config",
    "qwen3": "Qwen3Config",
    "marian": "MarianConfig",
}


@pytest.mark.parametrize("kind", REFERENCE)
def test_no_key_of_transformers_is_unknown(transformers, kind):
    """Every key of its config is read, or listed as having no effect."""
    from clearformer.hub.registry import MODEL_TYPES

    built = getattr(transformers, REFERENCE[kind])()
    data = {name: getattr(built, name) for name in (*built.to_dict(), *built.attribute_map)}
    settings = HFConfig({**data, "model_type": kind}, "here")
    MODEL_TYPES[kind].read_config(settings, ())
    assert settings.ignored == []


@pytest.mark.parametrize("kind", REFERENCE)
def test_ignored_keys_do_not_affect_transformers_computation(transformers, kind):
    """Keys that its modeling code reads and that we ignore are listed here."""
    import importlib
    import inspect
    import re

    place = f"transformers.models.{kind}.modeling_{kind}"
    source = inspect.getsource(importlib.import_module(place))
    read = set(re.findall(r"config\.(\w+)", source)) & IGNORED_KEYS
    # Training, classes, padding, what is returned beside the output, and how work is cut.
    known = {
        "_attn_implementation", "chunk_size_feed_forward", "classifier_dropout",
        "decoder_start_token_id", "hidden_dropout", "initializer_range", "num_labels",
        "pad_token_id", "problem_type", "use_cache",
    }  # fmt: skip
    assert read <= known


@pytest.mark.parametrize("name", sorted(NEUTRAL_VALUES))
def test_rejects_unsupported_features_unless_neutral(name):
    for value in (*NEUTRAL_VALUES[name], None):
        HFConfig({name: value}, "here").finish()
    with pytest.raises(ValueError, match=f"here: {name} is 'on', but clearformer computes"):
        HFConfig({name: "on"}, "here").finish()


def test_rejects_invalid_choice_and_flag():
    with pytest.raises(
        ValueError, match="here: act is 'mish', but clearformer computes gelu, relu"
    ):
        HFConfig({"act": "mish"}, "here").choice("act", {"gelu": 1, "relu": 2}, "gelu")
    with pytest.raises(ValueError, match="here: on is 1, but it must be true or false"):
        HFConfig({"on": 1}, "here").boolean("on", True)
