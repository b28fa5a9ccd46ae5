"""Writes the catalogue of verify into docs/verify.md: python docs/_ext/verify_pages.py."""

from pathlib import Path

from verify_views import VIEWS

from clearformer.verification.pages import all_pages

PAGE = Path(__file__).parents[1] / "verify.md"
MARK = "<!-- catalogue: written by docs/_ext/verify_pages.py -->\n"


def picture(name: str) -> str:
    """The picture of a bug, which verify_figures draws when the site is built."""
    themes = (
        f"```{{image}} _generated/verify/{name}-{theme}.svg\n:alt: {name}, wrong and right\n"
        f":class: only-{theme}\n```\n"
        for theme in ("light", "dark")
    )
    return "".join(themes) + f"\n*{VIEWS[name].caption}*\n"


def main() -> None:
    """Replace what follows the mark."""
    head, mark, _ = PAGE.read_text().partition(MARK)
    PAGE.write_text(f"{head}{mark}\n{all_pages(picture)}")


if __name__ == "__main__":
    main()
