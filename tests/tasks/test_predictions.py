"""Predictions as rows of a table."""

from clearformer.tasks.predictions import Prediction, prediction_rows

RECORDS = [{"id": 1, "text": "a"}, {"id": 2, "text": "b", "more": None}, {"id": 3, "text": ""}]
FOUND = [Prediction({"x": 0.6, "y": 0.4}, "x"), Prediction({"x": 0.9, "y": 0.1}, "y"), None]


def test_every_column_is_kept():
    rows = prediction_rows(RECORDS, FOUND)
    assert list(rows[0]) == ["id", "text", "more", "predicted", "probability", "correct"]
    assert [row["predicted"] for row in rows] == ["x", "x", ""]
    assert [row["correct"] for row in rows] == [True, False, ""]


def test_without_answers_nothing_is_called_correct():
    found = [Prediction({"x": 1.0, "y": 0.0})]
    assert list(prediction_rows(RECORDS[:1], found)[0]) == [
        "id",
        "text",
        "predicted",
        "probability",
    ]


def test_worst_first_by_how_wrong_it_is():
    found = [
        Prediction({"x": 0.6, "y": 0.4}, "y"),
        Prediction({"x": 0.9, "y": 0.1}, "x"),
        Prediction({"x": 0.1, "y": 0.9}, "x"),
    ]
    rows = prediction_rows(RECORDS, found, worst_first=True, probabilities=True)
    assert [row["id"] for row in rows] == [3, 1, 2]
    assert rows[0]["p(x)"] == 0.1


def test_below_the_threshold_is_no_prediction():
    rows = prediction_rows(RECORDS, FOUND, threshold=0.7)
    assert [row["predicted"] for row in rows] == ["", "x", ""]
    assert rows[0]["probability"] == 0.6


def test_a_column_of_that_name_stays():
    rows = prediction_rows([{"predicted": "mine"}], FOUND[:1])
    assert rows[0]["predicted"] == "mine"
    assert rows[0]["predicted (model)"] == "x"
