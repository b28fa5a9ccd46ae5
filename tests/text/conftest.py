"""Texts that are hard to encode, from one seed."""

import random

import pytest

# Where alphabets, marks, combining signs, emoji, private use and the far planes are.
RANGES = [
    (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x5FF), (0x900, 0x97F), (0x2000, 0x206F),
    (0x3040, 0x30FF), (0x4E00, 0x4FFF), (0xAC00, 0xAD00), (0xE000, 0xE0FF), (0xFE00, 0xFE0F),
    (0x1F300, 0x1F6FF), (0xE0100, 0xE01EF), (0x10FF00, 0x10FFFF),
]  # fmt: skip
SPACES = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\x1c", "\x85", "\u2028", "   \n"]
MARKS = [
    "<br />",
    "don't",
    "'s",
    "<|endoftext|>",
    "[MASK]",
    "[CLS]",
    "##ing",
    "Ġ",
    "123456",
    "A'll",
]


@pytest.fixture(scope="session")
def strange_texts():
    chance = random.Random(0)
    texts = ["", " ", "\n", "a", "\ufeff", "e\u0301", "👩‍👩‍👧", "ΣΑΣ", "İ", "\x00", "\x7f\x80"]
    for _ in range(150):
        parts = []
        for _ in range(chance.randrange(1, 40)):
            kind = chance.random()
            if kind < 0.25:
                parts.append(chance.choice(SPACES))
            elif kind < 0.4:
                parts.append(chance.choice(MARKS))
            else:
                low, high = chance.choice(RANGES)
                word = (chr(chance.randint(low, high)) for _ in range(chance.randrange(1, 8)))
                parts.append("".join(word))
        texts.append("".join(parts))
    return texts


@pytest.fixture(scope="session")
def prose():
    """Plain English, from Python's own help."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics)[:25])
