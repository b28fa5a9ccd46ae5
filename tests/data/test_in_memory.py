"""Data that is given in memory."""

import json
import re

import numpy as np
import pytest

from clearformer.data.in_memory import in_memory_data

COLUMNS = ("message", "topic")


def lines(data, as_table=True, columns=COLUMNS):
    return in_memory_data(data).content(columns, as_table).decode().splitlines()


def test_texts_and_pairs():
    assert lines(["a", "b"]) == ["a", "b"]
    assert in_memory_data(["a"]).file_name(as_table=True) == "data.txt"
    assert lines([("a", 1), ["b", np.int64(2)]]) == [
        '{"message": "a", "topic": 1}', '{"message": "b", "topic": 2}',
    ]  # fmt: skip


ROWS = [{"message": "é", "topic": "x", "n": 1}, {"message": "b", "topic": None, "n": 2}]


class Dataset:
    """Iterates as a `datasets.Dataset` does, over dicts."""

    column_names = ("message", "topic", "n")

    def __iter__(self):
        return iter(ROWS)


class Polars:
    """Offers its rows as a polars frame does."""

    columns = ("message", "topic", "n")

    def to_dicts(self):
        return ROWS


@pytest.mark.parametrize(
    "data", [ROWS, Dataset(), Polars(), {"message": ["é", "b"], "topic": ["x", None], "n": [1, 2]}]
)
def test_records_keep_all_columns(data):
    assert [json.loads(line) for line in lines(data)] == ROWS
    assert in_memory_data(data).file_name(as_table=True) == "data.jsonl"


def test_a_pandas_frame_with_missing_values():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"message": ["a", None], "topic": [1.0, float("nan")], "at": pandas.Timestamp("2024-05-06")}
    )
    first, second = map(json.loads, lines(frame))
    assert (first["message"], first["topic"]) == ("a", 1.0)
    assert (second["message"], second["topic"]) == (None, None)
    assert first["at"].startswith("2024-05-06")


def test_a_model_of_texts_gets_the_column_of_texts():
    assert lines(ROWS, as_table=False) == ["é", "b"]
    assert in_memory_data(ROWS).file_name(as_table=False) == "data.txt"
    sentence = "data has no column 'text'; the columns are message, topic, n: name the one"
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        lines(ROWS, as_table=False, columns=("text", "label"))


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ([], "data is an empty list"),
        (3, "data is 3, but it must be a path"),
        (b"x", "data is b'x', but it must be a path"),
        (["a", 5], "data[1] is 5, but data must be a path"),
        ([{"message": "\ud800"}], "data[0]['message'] is '\\ud800', which is not valid Unicode"),
        ({"train": Dataset(), "test": Dataset()}, "data has the parts train, test: give one of"),
        ({"a": [1], "b": [1, 2]}, "data is {'a': [1], 'b': [1, 2]}, but it must be"),
    ],
)
def test_what_is_no_data(data, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        in_memory_data(data)
