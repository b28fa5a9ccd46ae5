"""Numbers in words, English and German: pairs with an exact translation (by num2words).

All numbers below 1,000 and 24,000 random ones up to a million, small and large ones equally often.
The part of a number depends on the number alone, so that no number is in two parts.
"""

import hashlib

from clearformer.data.corpus_files import DataFolders
from clearformer.data.shuffle import draws
from clearformer.data.tables import Pairs

SMALL, DRAWN, LIMIT = 1000, 24_000, 1_000_000
PARTS = ("train", "validation", "test")


def number_words(part: str, folders: DataFolders) -> Pairs:
    try:
        from num2words import num2words
    except ImportError:
        raise ValueError(
            "number-words needs the package num2words, which is not installed: "
            "pip install num2words"
        ) from None
    numbers = [number for number in chosen() if part_of(number) == part]
    english = tuple(str(num2words(number, lang="en")) for number in numbers)
    german = tuple(str(num2words(number, lang="de")) for number in numbers)
    return Pairs(f"number-words {part}", english, german)


def chosen() -> list[int]:
    """The numbers of all parts, in order, the same on every machine."""
    raw = draws(DRAWN, seed=0, epoch=0).astype(float) / 2.0**64  # uniform from 0 to 1
    # Half of them are uniform in the logarithm; otherwise nearly all would have six digits.
    drawn = [
        int(LIMIT * value) if index % 2 else int(SMALL * (LIMIT / SMALL) ** value)
        for index, value in enumerate(raw.tolist())
    ]
    return sorted({*range(SMALL), *drawn})


def part_of(number: int) -> str:
    """A tenth of the numbers is validation, a tenth is test."""
    digit = hashlib.sha256(str(number).encode()).digest()[0] % 10
    return {0: "validation", 1: "test"}.get(digit, "train")
