"""Chat sessions: history, truncation, saving and loading."""

import json

import pytest

from clearformer.generate.chat_session import ChatSession
from clearformer.generate.detokenize import Token


@pytest.fixture
def asked():
    return []


@pytest.fixture
def session(asked):
    def answer(messages):
        asked.append(messages)
        if messages[-1]["content"] == "fail":
            raise ValueError("no")
        for word in ("you ", "said ", messages[-1]["content"]):
            yield Token(0, word, 1.0, 0.0, 0.0)

    return ChatSession(answer, lambda messages: len(messages) <= 5, "be nice")


def test_answers_are_added_to_conversation(session, asked):
    assert "".join(session.ask("hi")) == "you said hi"
    assert "".join(session.ask("bye")) == "you said bye"
    roles = [message["role"] for message in session.messages]
    assert roles == ["system", "user", "assistant", "user", "assistant"]
    assert asked[1][:3] == session.messages[:3]
    session.reset()
    assert session.messages == [{"role": "system", "content": "be nice"}]


def test_keeps_partial_answer_after_interrupt(session):
    answer = session.ask("hi")
    next(answer)
    answer.close()
    assert session.turns == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "you "},
    ]


def test_failed_message_is_not_added(session):
    list(session.ask("hi"))
    with pytest.raises(ValueError, match="no"):
        list(session.ask("fail"))
    assert len(session.turns) == 2
    assert "".join(session.ask("again")) == "you said again"


def test_drops_oldest_messages_when_context_is_full(session, asked):
    for text in ("a", "b", "c", "d"):
        list(session.ask(text))
    assert session.forgotten == 2 * 2
    assert [message["content"] for message in asked[-1]] == ["be nice", "c", "you said c", "d"]
    assert len(session.turns) == 8


def test_saved_conversation_can_be_continued(session, tmp_path):
    list(session.ask("hü"))
    session.save(tmp_path / "talk.json")
    assert json.loads((tmp_path / "talk.json").read_text()) == {"messages": session.messages}
    other = ChatSession(session.answer, session.fits)
    other.load(tmp_path / "talk.json")
    assert other.messages == session.messages
    (tmp_path / "talk.json").write_text("[1]")
    with pytest.raises(ValueError, match="messages is None, but it must be a list of messages"):
        other.load(tmp_path / "talk.json")
