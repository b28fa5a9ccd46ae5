"""Documentation pages: one per bug, identical in docs/verify.md."""

from pathlib import Path

import pytest

from clearformer.verification.entries import ENTRIES
from clearformer.verification.pages import PAGES, all_pages, page

DOCS = Path(__file__).parents[2] / "docs/verify.md"


def test_every_bug_has_a_page():
    assert set(PAGES) == set(ENTRIES)


def test_documentation_contains_same_pages():
    assert all_pages().strip() in DOCS.read_text()


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_page_shows_wrong_and_right_code(name):
    told = PAGES[name]
    assert told.wrong != told.right
    for part in (told.does, told.wrong, told.right, told.shows):
        assert part in page(name)


def test_rejects_unknown_name():
    with pytest.raises(ValueError, match="there is no check 'scale-mising': did you mean"):
        page("scale-mising")
