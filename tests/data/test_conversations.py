"""Conversation files in four formats; errors name the line."""

import json

import pytest

from clearformer.data import parse_conversation, read_conversations

EXCHANGE = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
SYSTEM = [{"role": "system", "content": "s"}, *EXCHANGE]


@pytest.fixture
def written(tmp_path):
    def write(*records, name="c.jsonl"):
        path = tmp_path / name
        path.write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")
        return str(path)

    return write


@pytest.mark.parametrize(
    ("record", "messages"),
    [
        ({"messages": EXCHANGE, "id": 3}, EXCHANGE),
        ({"messages": SYSTEM}, SYSTEM),
        ({"prompt": "a", "response": "b"}, EXCHANGE),
        ({"prompt": "a", "completion": "b"}, EXCHANGE),
        ({"instruction": "a", "output": "b"}, EXCHANGE),
        ({"instruction": "a", "input": "", "output": "b"}, EXCHANGE),
        (
            {"instruction": "a", "input": "x", "output": "b"},
            [{"role": "user", "content": "a\n\nx"}, EXCHANGE[1]],
        ),
        (
            {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]},
            EXCHANGE,
        ),
        (
            {
                "conversations": [
                    {"from": "system", "value": "s"},
                    {"from": "user", "value": "a"},
                    {"from": "assistant", "value": "b"},
                ]
            },
            SYSTEM,
        ),
    ],
)
def test_reads_every_conversation_format(record, messages, written):
    table = read_conversations(written(record, {"messages": EXCHANGE}))
    assert [parse_conversation(text) for text in table.texts] == [messages, EXCHANGE]


def test_reads_json_list_and_csv(tmp_path):
    path = tmp_path / "c.json"
    path.write_text(json.dumps([{"prompt": "a", "response": "b"}]))
    assert [parse_conversation(text) for text in read_conversations(str(path)).texts] == [EXCHANGE]
    path = tmp_path / "c.csv"
    path.write_text("prompt,response\na,b\n")
    assert [parse_conversation(text) for text in read_conversations(str(path)).texts] == [EXCHANGE]


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        (
            {"messages": EXCHANGE[:1]},
            "line 2: the conversation ends with a message of the role",
        ),
        (
            {"messages": EXCHANGE[::-1]},
            r"line 2: messages\[0\] has the role assistant, but the first",
        ),
        (
            {"text": "x"},
            "line 2: there is no conversation in the columns text: give one",
        ),
        (
            {"prompt": "a", "response": 3},
            r"line 2: messages\[1\] has the content 3, but it must be",
        ),
        (
            {"conversations": [{"from": "robot", "value": "x"}]},
            "is from 'robot', but it must be",
        ),
        ({"conversations": "x"}, "messages is 'x', but it must be a list of messages"),
        ({"instruction": 3, "output": "b"}, "instruction and input must be texts"),
        ({"messages": []}, "there are no messages"),
    ],
)
def test_rejects_invalid_records(record, sentence, written):
    with pytest.raises(ValueError, match=sentence):
        read_conversations(written({"messages": EXCHANGE}, record))


def test_rejects_empty_file(tmp_path):
    (tmp_path / "c.jsonl").write_text("\n")
    with pytest.raises(ValueError, match="there are no conversations in it"):
        read_conversations(str(tmp_path / "c.jsonl"))
