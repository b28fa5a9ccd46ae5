"""Reads MovieLens 100k: ratings of movies by users, for the recommender of the book's chapter 2.

GroupLens does not allow to pass the data on, so it is not included and not downloaded: unpack
ml-100k.zip (https://grouplens.org/datasets/movielens/100k/) in the folder CLEARFORMER_DATA.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clearformer import safe_files
from clearformer.data.corpus_files import DataFolders

FOLDER, RATINGS, MOVIES = "ml-100k", "u.data", "u.item"
MAX_BYTES = 64 * 2**20  # of one of the files; the largest has 2 million
MAX_TABLE = 2**26  # users times movies; MovieLens 100k has 1.6 million


@dataclass(frozen=True)
class Ratings:
    """A table of ratings, most of them unknown.

    Attributes:
        table (array): Of float32, (U, M): the rating of each user for each movie; NaN if unknown.
        titles (tuple): The title of each movie.
    """

    table: NDArray[np.float32]
    titles: tuple[str, ...]


def movielens(folder: Path | None = None) -> Ratings | None:
    """The ratings of the folder ml-100k in `folder` or else CLEARFORMER_DATA.

    Returns:
        Ratings: The ratings; None if there is no such folder.

    Raises:
        ValueError: If a file of it is missing or is not what MovieLens has; it names the line.
    """
    data = DataFolders.from_environment(folder).folder
    if data is None or not (data / FOLDER).is_dir():
        return None
    titles = dict(_titles(data / FOLDER / MOVIES))
    ratings = list(_ratings(data / FOLDER / RATINGS, titles))
    users = {user: row for row, user in enumerate(sorted({user for user, _, _ in ratings}))}
    columns = {movie: column for column, movie in enumerate(titles)}
    if len(users) * len(columns) > MAX_TABLE:
        raise ValueError(
            f"{data / FOLDER} has {len(users):,} users and {len(columns):,} movies, but the table "
            f"of all ratings may have at most {MAX_TABLE:,} entries: use MovieLens 100k"
        )
    table = np.full((len(users), len(columns)), np.nan, dtype=np.float32)
    for user, movie, rating in ratings:
        table[users[user], columns[movie]] = rating
    return Ratings(table, tuple(titles.values()))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines; MovieLens writes Latin-1."""
    try:
        content = safe_files.read(path, MAX_BYTES, "MAX_BYTES").decode("latin-1")
    except OSError as problem:
        raise ValueError(
            f"{path}: it cannot be read ({problem.strerror}): unpack ml-100k.zip again"
        ) from None
    for number, line in enumerate(content.split("\n"), start=1):
        if line.strip():
            yield number, line.rstrip("\r")


def _titles(path: Path) -> Iterator[tuple[int, str]]:
    for number, line in _lines(path):
        fields = line.split("|")
        if len(fields) < 2 or not _is_number(fields[0]):
            raise _wrong(path, number, line, "number|title|...")
        yield int(fields[0]), fields[1]


def _ratings(path: Path, titles: dict[int, str]) -> Iterator[tuple[int, int, float]]:
    for number, line in _lines(path):
        fields = line.split("\t")
        if len(fields) != 4 or not all(_is_number(each) for each in fields[:3]):
            raise _wrong(path, number, line, "user, movie, rating and time, separated by tabs,")
        user, movie, rating = (int(each) for each in fields[:3])
        if movie not in titles or not 1 <= rating <= 5:
            raise _wrong(path, number, line, f"a movie of {MOVIES} and a rating from 1 to 5")
        yield user, movie, float(rating)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _wrong(path: Path, number: int, line: str, wanted: str) -> ValueError:
    return ValueError(
        f"{path}, line {number} is {line!r:.60}, but {wanted} is needed: unpack ml-100k.zip again"
    )
