"""Generation for the explorer: same text as the command line, and the exact draw."""

import pytest

from clearformer.explore.generation import GeneratedText
from clearformer.explore.limits import Limits
from clearformer.explore.requests import GenerateRequest
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.sampling import Sampling
from clearformer.generate.stream import stream
from clearformer.http_server.errors import Problem

HOW = {"temperature": 0.8, "top_k": 40, "top_p": 0.9}


def written(loaded, id, **asked):
    text = GeneratedText(loaded(id), GenerateRequest(model=id, **asked), Limits())
    events = []
    while (event := text.next_token()) is not None:
        events.append(event)
    return events, text.reason


@pytest.mark.parametrize("id", ["gpt2", "xl", "modern", "sparse"])
def test_text_matches_command_line(loaded, id):
    model = loaded(id).model
    writer = LanguageModel(model.module, model.config, model.generation, model.tokenizer)
    expected = list(stream(writer, "the cat", Sampling(**HOW), max_tokens=12, seed=7))
    events, reason = written(loaded, id, prompt="the cat", max_new_tokens=12, seed=7, **HOW)
    assert [event["id"] for event in events] == [token.id for token in expected]
    assert "".join(e["text"] for e in events) == "".join(t.text for t in expected)
    assert reason == "length"


def test_draw_lies_between_cumulative_sums(loaded):
    events, _ = written(loaded, "gpt2", prompt="the", max_new_tokens=20, seed=3, **HOW)
    for event in events:
        low, high = event["cumulative"]
        assert low - 1e-9 <= event["u"] < high + 1e-9
        assert high - low == pytest.approx(event["p"])
        shares = [each["p"] for each in event["top"]]
        assert shares == sorted(shares, reverse=True)


def test_temperature_zero_is_argmax(loaded):
    events, _ = written(loaded, "gpt2", prompt="the", max_new_tokens=3, temperature=0)
    for event in events:
        assert event["p"] == event["top"][0]["p"] == 1
        assert event["id"] == event["top"][0]["id"]
        assert event["cumulative"] == [0, 1]


def test_forced_tokens_consume_draws(loaded):
    whole, _ = written(loaded, "gpt2", prompt="the", max_new_tokens=6, seed=5)
    ids = [event["id"] for event in whole]
    rest, _ = written(loaded, "gpt2", prompt="the", max_new_tokens=3, seed=5, forced=ids[:3])
    assert [(event["i"], event["id"]) for event in rest] == [*enumerate(ids)][3:]
    assert [event["u"] for event in rest] == [event["u"] for event in whole[3:]]


def test_forced_tokens_can_be_reported(loaded):
    """A page that is opened again shows the tokens that it had, with the same numbers."""
    whole, _ = written(loaded, "gpt2", prompt="the", max_new_tokens=6, seed=5, **HOW)
    asked = {"forced": [event["id"] for event in whole], "max_new_tokens": 1, "report_from": 2}
    again, _ = written(loaded, "gpt2", prompt="the", seed=5, **asked, **HOW)
    for one, other in zip(again, whole[2:], strict=False):
        # The last token of the shorter text also carries the rest of a character.
        assert {**one, "text": ""} == {**other, "text": ""}
    assert again[4]["i"] == 6


def test_close_ends_text(loaded):
    text = GeneratedText(loaded("gpt2"), GenerateRequest(model="gpt2", prompt="the"), Limits())
    text.next_token()
    text.close()
    assert text.next_token() is None
    assert text.reason == "cancelled"


@pytest.mark.parametrize(
    ("id", "asked", "status", "sentence"),
    [
        ("bert", {"prompt": "a"}, 409, "is a masked model: it can fill and embed, not generate"),
        ("original", {"prompt": "a"}, 409, "an encoder-decoder translates"),
        ("gpt2", {"prompt": ""}, 422, "the prompt is empty"),
        ("gpt2", {"prompt": "a" * 500}, 422, "but the context of gpt2-tiny is 64"),
        ("gpt2", {"prompt": "a", "max_new_tokens": 201}, 413, "201 new tokens, limit 200"),
        ("gpt2", {"prompt": "a", "forced": [10**6]}, 422, "there is no token 1000000"),
    ],
)
def test_rejects_invalid_requests_before_first_token(loaded, id, asked, status, sentence):
    with pytest.raises(Problem, match=sentence) as problem:
        written(loaded, id, **asked)
    assert problem.value.status == status
