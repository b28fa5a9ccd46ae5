"""Pages: one for each bug, the same in docs/verify.md, each with a picture."""

import sys
from pathlib import Path

import numpy as np
import pytest

from clearformer.verification.entries import ENTRIES
from clearformer.verification.pages import PAGES, page

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def figures():
    """The modules that draw the pictures."""
    sys.path.insert(0, str(DOCS / "_ext"))
    import verify_figures
    import verify_pages

    yield verify_figures, verify_pages
    sys.path.remove(str(DOCS / "_ext"))


def test_every_bug_has_a_page():
    assert set(PAGES) == set(ENTRIES)


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_the_documentation_holds_the_page_with_its_picture(name, figures):
    _, pages = figures
    told = page(name, pages.picture(name))
    assert f"_generated/verify/{name}-dark.svg" in told
    assert told in (DOCS / "verify.md").read_text()


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_page_shows_wrong_and_right_code(name):
    told = PAGES[name]
    assert told.wrong != told.right
    for part in (told.does, told.wrong, told.right, told.shows):
        assert part in page(name)


@pytest.mark.parametrize("name", sorted(set(ENTRIES) - {"loss-not-shifted"}))
def test_wrong_and_right_give_different_numbers(name, figures):
    wrong, right = figures[0].compute(name)
    finite = [np.isfinite(each).sum() for each in (wrong, right)]
    assert min(finite) > 0
    same = wrong.shape == right.shape and np.allclose(
        np.nan_to_num(wrong), np.nan_to_num(right), rtol=1e-3, atol=1e-9
    )
    assert not same or finite[0] != finite[1]


def test_a_picture_is_drawn_for_light_and_dark(figures, tmp_path):
    figures[0].draw("future-leak", tmp_path)
    light, dark = (tmp_path / f"future-leak-{theme}.svg" for theme in ("light", "dark"))
    assert "<svg" in light.read_text()
    assert light.read_bytes() != dark.read_bytes()


def test_rejects_unknown_name():
    with pytest.raises(ValueError, match="there is no check 'scale-mising': did you mean"):
        page("scale-mising")
