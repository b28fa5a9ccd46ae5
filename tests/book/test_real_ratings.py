"""Chapter 2 with real ratings: a folder in MovieLens' format is used, and its absence is said."""

from pathlib import Path

import jupytext
import matplotlib.pyplot as plt
import numpy as np
import pytest

CHAPTER = Path(__file__).parents[2] / "docs/book/2-why-it-works.md"


def made_folder(folder):
    """60 users and 50 movies with two hidden features; some titles look like mathematics."""
    draw = np.random.default_rng(0)
    users, movies = draw.normal(size=(60, 2)), draw.normal(size=(50, 2))
    scores = np.clip(np.round(3 + users @ movies.T), 1, 5).astype(int)
    known = draw.random((60, 50)) < 0.6
    (folder / "ml-100k").mkdir()
    (folder / "ml-100k" / "u.data").write_text(
        "".join(
            f"{u + 1}\t{m + 1}\t{scores[u, m]}\t1\n" for u, m in zip(*known.nonzero(), strict=True)
        )
    )
    (folder / "ml-100k" / "u.item").write_text(
        "".join(f"{number + 1}|$\\frac{{ {number} (1990)|||\n" for number in range(50))
    )
    return folder


def run_until_real_ratings(monkeypatch, folder):
    """The chapter's variables after the cell about real ratings."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("CLEARFORMER_DATA", str(folder))
    names = {}
    for cell in jupytext.read(CHAPTER, fmt="md:myst").cells:
        if cell.cell_type == "code":
            exec(cell.source.replace("range(3)", "range(1)"), names)
        if "movielens()" in cell.source:
            return names
    pytest.fail("no cell of the chapter reads MovieLens")


@pytest.fixture(autouse=True)
def closed_figures():
    with plt.rc_context():
        yield
    plt.close("all")


def test_uses_movielens_if_it_is_there(monkeypatch, tmp_path, capsys):
    names = run_until_real_ratings(monkeypatch, made_folder(tmp_path))
    assert "60 users, 50 movies; error on unseen ratings: " in capsys.readouterr().out
    assert names["by_features"] < 0.8 * names["by_means"]
    assert names["axes"].get_title() == "the 40 movies with the most ratings"
    names["figure"].canvas.draw()  # a title is not read as mathematics


def test_says_if_movielens_is_not_there(monkeypatch, tmp_path, capsys):
    names = run_until_real_ratings(monkeypatch, tmp_path)
    assert names["real"] is None
    assert "CLEARFORMER_DATA names no folder with ml-100k" in capsys.readouterr().out
