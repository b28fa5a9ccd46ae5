"""Extractive question answering: windows, targets, best spans, training and evaluation."""

import json
import math

import pytest
import torch

import clearformer as cf
from clearformer.config import AnswerSpan
from clearformer.data.question_files import Question, Questions
from clearformer.tasks.answer_spans import (
    MAX_ANSWER,
    best_answers,
    encode_questions,
    normalized,
    word_f1,
)


@pytest.fixture
def loaded(tiny_bert):
    return cf.load(tiny_bert)


def one_question(context, answer, question="where ?"):
    answers = ((answer, context.index(answer)),) if answer else ()
    return Questions("q", (Question("1", question, context, answers),))


def test_target_is_token_span_of_answer(loaded):
    asked = one_question("mary lives in new york .", "new york")
    rows = encode_questions(asked, loaded.tokenizer, 48)
    (row,) = rows.examples.rows
    first, last = row.target.tolist()
    assert loaded.tokenizer.decode(row.tokens[first : last + 1]) == "new york"
    assert row.segments[first] == 1


def test_answer_inside_word_covers_whole_word(loaded):
    rows = encode_questions(one_question("in (rome)", "rom"), loaded.tokenizer, 48)
    (row,) = rows.examples.rows
    first, last = row.target.tolist()
    assert loaded.tokenizer.decode(row.tokens[first : last + 1]) == "rome"


def test_long_context_is_split_into_overlapping_windows(loaded):
    context = "mary lives in rome . " * 8 + "john lives in oslo ."
    rows = encode_questions(one_question(context, "oslo"), loaded.tokenizer, 24)
    assert len(rows.windows) > 2
    shown = set()
    for window in rows.windows:
        shown |= set(range(window.first, window.first + window.end - window.offset))
    assert shown == set(range(len(rows.encoded[0].ids)))
    assert all(len(row.tokens) <= 24 for row in rows.examples.rows)
    with_answer = [row for row in rows.examples.rows if row.target[0] > 0]
    assert 1 <= len(with_answer) < len(rows.windows)
    for row in with_answer:
        assert loaded.tokenizer.decode(row.tokens[row.target[0] : row.target[1] + 1]) == "oslo"


def test_unanswerable_question_targets_first_token(loaded):
    rows = encode_questions(one_question("mary lives in rome .", ""), loaded.tokenizer, 48)
    assert rows.examples.rows[0].target.tolist() == [0, 0]


def spans(loaded, scores, context, unanswerable=False):
    """The best answer for given scores of the context's tokens and of "nowhere"."""
    asked = one_question(context, "")
    rows = encode_questions(asked, loaded.tokenizer, 48)
    window = rows.windows[0]
    logits = torch.full((len(rows.examples.rows[0].tokens), 2), 9.0)  # outside: to be ignored
    logits[0] = scores["nowhere"]
    logits[window.offset : window.end] = torch.tensor(scores["context"])
    config = cf.load(loaded.path).run_config
    head = AnswerSpan(unanswerable=unanswerable)
    config = type(config)(
        model=type(config.model)(**{**vars(config.model), "head": head}),
        data=config.data, train=config.train,
    )  # fmt: skip
    return best_answers([logits], asked, rows, config)[0]


def test_best_span_matches_hand_computation(loaded):
    context = "mary lives in rome ."
    # Ends before starts are impossible: 4 + 4 is not allowed, 4 + 2 is the best.
    scores = [[0, 4], [4, 0], [0, 1], [0, 2], [0, 0]]
    found = spans(loaded, {"nowhere": 0.0, "context": scores}, context)
    assert found.text == "lives in rome"
    assert context[found.start : found.end] == found.text
    starts = torch.tensor([0.0, *(each[0] for each in scores)]).softmax(0)
    ends = torch.tensor([0.0, *(each[1] for each in scores)]).softmax(0)
    assert found.probability == pytest.approx(float(starts[2] * ends[4]), rel=1e-5)


def test_empty_answer_requires_unanswerable_training(loaded):
    scores = {"nowhere": 5.0, "context": [[1, 1]] * 5}
    assert spans(loaded, scores, "mary lives in rome .").text != ""
    assert spans(loaded, scores, "mary lives in rome .", unanswerable=True).text == ""
    scores["nowhere"] = 0.5
    assert spans(loaded, scores, "mary lives in rome .", unanswerable=True).text != ""


def test_answer_length_is_limited(loaded):
    context = " ".join(["rome"] * 40)
    scores = [[0.0, 0.0] for _ in range(40)]
    scores[0][0] = scores[39][1] = 5.0
    scores[10][1] = 1.0
    found = spans(loaded, {"nowhere": 0.0, "context": scores}, context)
    assert len(found.text.split()) <= MAX_ANSWER


def test_loss_covers_start_and_end_positions(small):
    model = cf.build(small("bert", head=AnswerSpan(), segments=None))
    tokens = torch.randint(13, (2, 6))
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    targets = torch.tensor([[1, 2], [0, 3]])
    with torch.no_grad():
        hidden = model.hidden(tokens, mask)
        total, count = model.head.loss(hidden, targets, mask)
        scores = model.head(hidden)
    expected = 0.0
    for row, length in ((0, 6), (1, 4)):
        for which in (0, 1):
            logits = scores[row, :length, which].log_softmax(0)
            expected -= float(logits[targets[row, which]])
    assert float(total) == pytest.approx(expected, rel=1e-5)
    assert int(count) == 4


@pytest.mark.parametrize(
    ("guess", "right", "f1"),
    [
        ("The cat!", "cat", 1.0),
        ("a cat sat", "the cat", 2 / 3),
        ("dog", "cat", 0.0),
        ("", "", 1.0),
        ("", "cat", 0.0),
    ],
)
def test_word_f1_matches_squad(guess, right, f1):
    assert word_f1(guess, right) == pytest.approx(f1)
    assert normalized("The  Cat, a dog.") == "cat dog"


def test_learns_to_find_answers(homes, finetune, tmp_path):
    (tmp_path / "q.jsonl").write_text(homes["questions"](homes["draw"](300, people=1), kinds=3))
    model = finetune("answer", tmp_path / "q.jsonl", tmp_path / "run", steps=300)
    found = model.evaluate()
    assert found.metrics["exact_match"] > 0.95
    assert found.metrics["f1"] >= found.metrics["exact_match"]
    context = "they say mary lives in new york ."
    one = model.answer("where ?", context)
    assert (one.text, context[one.start : one.end]) == ("new york", "new york")
    asked = ["where ?", "who lives there ?", "when ?"]
    assert [each.text for each in model.answer(asked, context)] == ["new york", "mary", ""]
    assert math.isclose(
        model.answer(asked, [context] * 3)[0].probability, one.probability, rel_tol=1e-4
    )


def test_training_data_sets_unanswerable(homes, finetune, tmp_path):
    for kinds in (2, 3):
        file, out = tmp_path / f"{kinds}.jsonl", tmp_path / f"run{kinds}"
        file.write_text(homes["questions"](homes["draw"](40), kinds))
        model = finetune("answer", file, out, steps=1)
        assert model.config.head.unanswerable == (kinds == 3)
        assert ("questions have none" in str(model.evaluate(file))) == (kinds == 3)


def test_trains_from_squad_file(homes, finetune, tmp_path):
    rows = [homes["question"](each) for each in homes["draw"](30)]
    document = {
        "version": "1.1",
        "data": [
            {
                "title": "homes",
                "paragraphs": [
                    {"context": row["context"], "qas": [{**row, "id": str(n), "context": None}]}
                    for n, row in enumerate(rows)
                ],
            }
        ],
    }
    for article in document["data"]:
        for paragraph in article["paragraphs"]:
            for asked in paragraph["qas"]:
                del asked["context"]
    (tmp_path / "squad.json").write_text(json.dumps(document))
    model = finetune("answer", tmp_path / "squad.json", tmp_path / "run", steps=1)
    assert model.evaluate(tmp_path / "squad.json").report.total == 30


@pytest.mark.parametrize(
    ("questions", "contexts", "sentence"),
    [
        ("", "text", "question 1 is empty: give a question and the text to read"),
        ("who", " ", "context 1 is empty: give a question and the text to read"),
        (["a", "b"], ["c"], "there are 2 questions and 1 contexts: give one context for all"),
        (5, "c", "`questions` is 5, but it must be a string or a list of them"),
        ("a", None, "`contexts` is None, but it must be a string or a list of them"),
    ],
)
def test_rejects_invalid_questions(homes, finetune, tmp_path, questions, contexts, sentence):
    (tmp_path / "q.jsonl").write_text(homes["questions"](homes["draw"](30)))
    model = finetune("answer", tmp_path / "q.jsonl", tmp_path / "run", steps=1)
    with pytest.raises(ValueError, match=sentence):
        model.answer(questions, contexts)
