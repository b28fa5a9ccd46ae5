"""Writes the catalogue of verify into docs/verify.md: python docs/_ext/verify_pages.py."""

from pathlib import Path

from clearformer.verification.pages import all_pages

PAGE = Path(__file__).parents[1] / "verify.md"
MARK = "<!-- catalogue: written by docs/_ext/verify_pages.py -->\n"


def main() -> None:
    """Replace what follows the mark."""
    head, mark, _ = PAGE.read_text().partition(MARK)
    PAGE.write_text(f"{head}{mark}\n{all_pages()}")


if __name__ == "__main__":
    main()
