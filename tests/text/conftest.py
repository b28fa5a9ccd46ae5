"""Fixtures: texts that contain special tokens, as streams cut at any place."""

import random
from itertools import pairwise

import pytest

ATOMS = (
    *("the", "cat", "don't", "'s", "x" * 20, "123", "4567", "١٢", "漢字", "é", "e\u0301", "\u0301"),
    *(" ", "  ", "\n", "\r\n", "\n\n", "\t", "\u3000", "\xa0", "\u200d", "\x1f", "😀", "ΑΣ", "İ"),
    *(",", ".", ":", "!", "。", "，", "<br />", "<br\n/>", "<BR  >"),
    *("<|endoftext|>", "a b", "<think>", "[SEP]", "[MASK]", "[mask]", "[my, token]", "</s>", "<s>"),
)


@pytest.fixture(scope="session")
def marked_streams():
    """(text, size of chunks, its bytes cut at random), shorter than 32 chunks."""
    chance = random.Random(0)
    found = []
    while len(found) < 600:
        some = chance.sample(ATOMS, chance.randint(1, 8))
        text = "".join(chance.choice(some) for _ in range(chance.randint(0, 60)))
        size = chance.choice((5, 10, 20, 40))
        if len(text) >= 32 * size:
            continue
        data = text.encode()
        cuts = [0, *sorted(chance.randint(0, len(data)) for _ in range(5)), len(data)]
        found.append((text, size, [data[a:b] for a, b in pairwise(cuts)]))
    return found


@pytest.fixture
def require_equal_streams(marked_streams, monkeypatch):
    """Check that streams have the ids of whole texts."""
    from clearformer.text import tokenizer, utf8

    def check(of_stream, of_text):
        for text, size, chunks in marked_streams:

            def small(chunks, unsplittable=(), size=size):
                return utf8.text_chunks(chunks, size, unsplittable)

            monkeypatch.setattr(tokenizer, "text_chunks", small)
            found = [i for ids in of_stream(chunks) for i in ids.tolist()]
            assert found == of_text(text).tolist(), (text, size)

    return check
