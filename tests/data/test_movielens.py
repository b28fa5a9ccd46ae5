"""MovieLens 100k: a small folder in its format is read, and damaged ones are refused."""

import math
import re

import pytest

from clearformer.data.movielens import movielens

MOVIES = (
    "1|Toy Story (1995)|01-Jan-1995||http://us.imdb.com/M/title-exact?Toy%20Story%20(1995)|0|0|0|1|1\n"
    "3|Misérables, Les (1995)|01-Jan-1995||http://us.imdb.com/|0|0|0|0|0\n"
)
RATINGS = "196\t3\t4\t881250949\n22\t1\t2\t878887116\n22\t3\t5\t878887117\n"


def write(folder, ratings=RATINGS, movies=MOVIES):
    (folder / "ml-100k").mkdir()
    (folder / "ml-100k" / "u.data").write_text(ratings, encoding="latin-1")
    (folder / "ml-100k" / "u.item").write_text(movies, encoding="latin-1")
    return folder


def test_reads_users_movies_and_latin_1_titles(tmp_path):
    found = movielens(write(tmp_path))
    assert found.titles == ("Toy Story (1995)", "Misérables, Les (1995)")
    assert found.table.shape == (2, 2)  # users 22 and 196
    assert found.table[0].tolist() == [2, 5]
    assert math.isnan(found.table[1, 0])
    assert found.table[1, 1] == 4


def test_folder_comes_from_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("CLEARFORMER_DATA", str(write(tmp_path)))
    assert movielens() is not None


def test_is_none_without_data(tmp_path, monkeypatch):
    assert movielens(tmp_path) is None
    monkeypatch.delenv("CLEARFORMER_DATA", raising=False)
    assert movielens() is None


@pytest.mark.parametrize(
    ("ratings", "movies", "words"),
    [
        ("1 3 4 5\n", MOVIES, "u.data, line 1 is '1 3 4 5', but user, movie, rating and time"),
        ("1\t2\t4\t5\n", MOVIES, "a movie of u.item and a rating from 1 to 5"),
        ("1\t3\t6\t5\n", MOVIES, "a movie of u.item and a rating from 1 to 5"),
        (RATINGS, "one|Toy Story\n", "u.item, line 1 is 'one|Toy Story', but number|title|..."),
    ],
)
def test_refuses_damaged_files_by_line(tmp_path, ratings, movies, words):
    with pytest.raises(ValueError, match=re.escape(words)) as problem:
        movielens(write(tmp_path, ratings, movies))
    assert "unpack ml-100k.zip again" in str(problem.value)


def test_refuses_missing_file(tmp_path):
    (write(tmp_path) / "ml-100k" / "u.item").unlink()
    with pytest.raises(ValueError, match=r"u\.item"):
        movielens(tmp_path)


def test_refuses_tables_that_are_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr("clearformer.data.movielens.MAX_TABLE", 3)
    with pytest.raises(ValueError, match="2 users and 2 movies, but the table of all ratings"):
        movielens(write(tmp_path))
