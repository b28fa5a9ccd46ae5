"""Question files: SQuAD format, JSON lines, and errors."""

import json

import pytest

from clearformer.data.question_files import read_questions

CONTEXT = "Mary lives in Rome."
ROW = {"question": "Where?", "context": CONTEXT}


def write(tmp_path, rows, name="q.jsonl"):
    path = tmp_path / name
    lines = "\n".join(json.dumps(row) if row else "\n" for row in rows)
    path.write_text(lines if name == "q.jsonl" else json.dumps(rows))
    return path


@pytest.mark.parametrize(
    "answers",
    [
        {"answers": [{"text": "Rome", "answer_start": 14}]},
        {"answers": {"text": ["Rome"], "answer_start": [14]}},
        {"answers": [{"text": "Rome"}]},
        {"answers": [{"text": "Rome", "answer_start": 3}]},  # looked for
        {"answer": "Rome"},
    ],
)
def test_reads_every_answer_format(tmp_path, answers):
    (found,) = read_questions(write(tmp_path, [{**ROW, **answers}])).rows
    assert found.answers == (("Rome", 14),)


def test_reads_questions_without_answer(tmp_path):
    rows = [{**ROW, "answers": []}, {**ROW, "answers": {"text": [], "answer_start": []}}]
    assert [row.answers for row in read_questions(write(tmp_path, rows)).rows] == [(), ()]
    assert read_questions(write(tmp_path, [ROW]), answers=False).rows[0].question == "Where?"


def test_reads_squad_file(tmp_path):
    asked = {"question": "Where?", "id": "7", "answers": [{"text": "Rome", "answer_start": 14}]}
    nothing = {"question": "Why?", "id": "8", "answers": [], "is_impossible": True}
    document = {"data": [{"paragraphs": [{"context": CONTEXT, "qas": [asked, nothing]}]}]}
    found = read_questions(write(tmp_path, document, "squad.json"))
    assert [row.id for row in found.rows] == ["7", "8"]
    assert found.rows[0].answers == (("Rome", 14),)
    assert found.texts == (CONTEXT, CONTEXT)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([""], "it has no questions"),
        ([{"context": "a"}], r"line 1: 'question' is None, but a text is needed"),
        ([{**ROW, "context": " "}], r"line 1: 'context' is ' ', but a text is needed"),
        ([ROW], r"line 1: 'answers' is None, but a list of objects with text and answer_start"),
        ([{**ROW, "answers": [{"text": 1}]}], r"'text' is 1, but a text is needed"),
        ([{**ROW, "answer": "Oslo"}], r"line 1: the answer 'Oslo' is not in its context"),
        ([{**ROW, "answers": {"text": ["a"], "answer_start": []}}], r"'answers' is"),
    ],
)
def test_rejects_invalid_rows(tmp_path, rows, sentence):
    with pytest.raises(ValueError, match=sentence):
        read_questions(write(tmp_path, rows))


def test_rejects_other_file_formats(tmp_path):
    (tmp_path / "q.csv").write_text("a")
    with pytest.raises(ValueError, match=r"questions are read from SQuAD's .json, or from .jsonl"):
        read_questions(tmp_path / "q.csv")
    with pytest.raises(ValueError, match=r"'data' is None, but a list of objects is needed"):
        read_questions(write(tmp_path, {}, "squad.json"))
