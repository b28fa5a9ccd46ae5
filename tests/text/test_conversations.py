"""Validation of messages with roles: each error is one sentence."""

import pytest

from clearformer.text.conversations import check_messages

SYSTEM, USER, ANSWER = ({"role": role, "content": role} for role in ("system", "user", "assistant"))


@pytest.mark.parametrize("messages", [[USER], [SYSTEM, USER], [USER, ANSWER, USER]])
def test_accepts_valid_conversations(messages):
    assert check_messages(messages, answered=False) == messages
    assert check_messages([*messages, ANSWER], answered=True) == [*messages, ANSWER]


def test_text_parts_are_joined_and_developer_becomes_system():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    given = [{"role": "developer", "content": "s"}, {"role": "user", "content": parts, "name": "x"}]
    assert check_messages(given, answered=False) == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "ab"},
    ]


@pytest.mark.parametrize(
    ("messages", "answered", "sentence"),
    [
        ("hello", False, "messages is 'hello', but it must be a list of messages"),
        ([], False, "there are no messages: give at least one of the user"),
        (["hi"], False, r"messages\[0\] is 'hi', but it must have a role and a content"),
        ([{"content": "x"}], False, r"messages\[0\] has the role None, but it must be one of"),
        ([{"role": "user"}], False, r"messages\[0\] has the content None, but it must be a text"),
        ([{"role": "tool", "content": "x"}], False, "has the role 'tool', but it must be one of"),
        ([ANSWER], True, r"messages\[0\] has the role assistant, but the first message must be of"),
        ([USER, USER], False, r"messages\[1\] has the role user, but after a user's message comes"),
        ([USER, SYSTEM], False, r"messages\[1\] has the role system, but after a user's message"),
        ([USER, ANSWER, ANSWER], True, r"messages\[2\] has the role assistant, but the next"),
        ([USER], True, "ends with a message of the role user, so there is no answer to learn"),
        ([SYSTEM], True, "ends with a message of the role system, so there is no answer to learn"),
        ([USER, ANSWER], False, "ends with a message of the role assistant, so there is nothing"),
        ([{"role": "user", "content": "\ud800"}], False, "is not valid Unicode text"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], False, "only text is supported"),
        ([USER] * 10_001, False, "there are 10,001 messages, but at most 10,000 fit"),
    ],
)
def test_rejects_invalid_messages(messages, answered, sentence):
    with pytest.raises(ValueError, match=sentence):
        check_messages(messages, answered=answered)
