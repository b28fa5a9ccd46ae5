"""Forms of responses: tokens that are parts of characters, usage, and events."""

import json

from clearformer.generate.detokenize import Alternative, Token
from clearformer.generate.sequence import GeneratedSequence, GenerationConfig
from clearformer.serve.answers import Answer, Chat, Completions, event, spelled
from clearformer.text import Bytes, Words


def sequence(prompt, *tokens, reason=None):
    made = GeneratedSequence(prompt, GenerationConfig(), Bytes())
    made.tokens, made.generated = list(tokens), [token.id for token in tokens]
    made.finish_reason = reason
    return made


A = Token(65, "A", 1.0, 2.0, 0.5, (Alternative(65, 2.0), Alternative(0xC3, 3.0)))


def test_a_part_of_a_character_is_shown_as_its_byte():
    assert spelled(Bytes(), 65) == "A"
    assert spelled(Bytes(), 0xC3) == "bytes:\\xc3"
    assert spelled(None, 9) == "token_id:9"
    assert spelled(Words.train(["cat"]), 1)


def test_a_completion_with_logprobs():
    part = Completions(Bytes(), 2).part([A, A], "ab")
    assert part["text"] == "AA"
    assert part["logprobs"]["tokens"] == ["A", "A"]
    assert part["logprobs"]["text_offset"] == [2, 3]
    assert list(part["logprobs"]["top_logprobs"][0]) == ["A", "bytes:\\xc3"]


def test_a_chat_with_logprobs():
    (entry,) = Chat(Bytes(), True).part([A], "")["logprobs"]["content"]
    assert (entry["token"], entry["bytes"]) == ("A", [65])
    assert [each["bytes"] for each in entry["top_logprobs"]] == [[65], [0xC3]]


def test_a_prompt_of_several_samples_is_counted_once():
    several = [sequence([1, 2], A, reason="end"), sequence([1, 2], A, A, reason="context")]
    whole = Answer(Completions(None, None), "m", several, samples=2).whole()
    assert whole["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}
    assert [choice["finish_reason"] for choice in whole["choices"]] == ["stop", "length"]


def test_equal_prompts_are_counted_each():
    several = [sequence([1, 2], A, reason="end") for _ in range(4)]
    usage = Answer(Completions(None, None), "m", several, samples=2).whole()["usage"]
    assert usage == {"prompt_tokens": 4, "completion_tokens": 4, "total_tokens": 8}


def test_events_are_ascii_lines():
    sent = event({"text": "\ud800 é\n"})
    assert sent.startswith(b"data: ")
    assert sent.endswith(b"\n\n")
    assert sent.count(b"\n") == 2
    assert json.loads(sent[6:])["text"] == "\ud800 é\n"


def test_a_stream_ends_with_its_usage_if_that_was_asked_for():
    answer = Answer(Chat(None, False), "m", [sequence([1], A, reason="length")])
    assert len(answer.openings()) == 1
    last = json.loads(answer.chunk(0, [A], True)[6:])
    assert last["choices"][0] == {
        "index": 0, "delta": {"content": "A"}, "logprobs": None, "finish_reason": "length",
    }  # fmt: skip
    assert answer.closing(False) == [b"data: [DONE]\n\n"]
    assert len(answer.closing(True)) == 2
