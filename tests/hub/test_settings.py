"""A config.json, key by key."""

import pytest

from clearformer.hub.settings import HARMLESS, NEUTRAL, Settings


def test_values_and_defaults():
    settings = Settings({"n": 3, "x": 1, "on": True, "kind": "b", "none": None}, "here")
    assert settings.whole("n", 5) == 3
    assert settings.whole("none", 5, 4) == 4
    assert settings.number("x", 0.5) == 1.0
    assert settings.flag("on", False) is True
    assert settings.choice("kind", {"a": 1, "b": 2}, "a") == 2
    settings.close()


@pytest.mark.parametrize("value", [0, -1, 10**9, 1.5, True, "3", [3]])
def test_a_number_out_of_range_is_refused_before_anything_is_made(value):
    with pytest.raises(ValueError, match=r"here: n is .*, but it must be a whole number from 1 to"):
        Settings({"n": value}, "here").whole("n", 65_536)


def test_what_is_missing_is_refused():
    with pytest.raises(ValueError, match="here: n is None, but it must be a whole number"):
        Settings({}, "here").whole("n", 10)


@pytest.mark.parametrize("value", ["nan", float("nan"), float("inf"), 2.0, -0.1, True])
def test_a_share_must_be_one(value):
    with pytest.raises(ValueError, match=r"here: x is .*, but it must be a number from 0 to 1"):
        Settings({"x": value}, "here").number("x", 0.5)


def test_what_nobody_asked_for_is_refused_by_name():
    with pytest.raises(ValueError, match=r"here sets new_trick to 0.5, which clearformer does not"):
        Settings({"new_trick": 0.5}, "here").close()
    with pytest.raises(ValueError, match="here sets use_bias to False"):
        Settings({"use_bias": False}, "here").close()
    Settings({"new_trick": 0.5, "off": None}, "here").close({"new_trick"})
    Settings(dict.fromkeys(HARMLESS, 1), "here").close()


@pytest.mark.parametrize("name", sorted(NEUTRAL))
def test_what_would_change_the_computation_may_only_be_off(name):
    for value in (*NEUTRAL[name], None):
        Settings({name: value}, "here").close()
    with pytest.raises(ValueError, match=f"here: {name} is 'on', but clearformer computes"):
        Settings({name: "on"}, "here").close()


def test_choices_and_flags_are_named():
    with pytest.raises(
        ValueError, match="here: act is 'mish', but clearformer computes gelu, relu"
    ):
        Settings({"act": "mish"}, "here").choice("act", {"gelu": 1, "relu": 2}, "gelu")
    with pytest.raises(ValueError, match="here: on is 1, but it must be true or false"):
        Settings({"on": 1}, "here").flag("on", True)
