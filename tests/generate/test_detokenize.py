"""Streaming detokenization: whole characters, spaces between words, and stop strings."""

import random

import pytest

from clearformer.generate.detokenize import StopStrings, Token, detokenizer
from clearformer.text import ByteFallbackPairs, BytePairs, Bytes, Characters, WordPieces, Words
from clearformer.text.byte_fallback import BYTES, SPACE, FallbackSpec
from clearformer.text.specs import byte_characters

PROSE = "ein schöner Tag, ein schönes Jahr 😀"


def fallback(front="normalizer"):
    """A Llama-like tokenizer: letters, a few merges, and byte fallback."""
    letters = sorted({SPACE, *PROSE.replace(" ", "")} - {"😀"})
    merges = ((SPACE, "e"), ("i", "n"), (SPACE + "e", "in"))
    vocabulary = ("<unk>", "<s>", *BYTES, *letters, *map("".join, merges))
    return ByteFallbackPairs(FallbackSpec(vocabulary, merges, front, ("<unk>", "<s>")))


KINDS = {
    "bytes": Bytes(),
    "bpe": BytePairs.train([PROSE] * 9, 300),
    "fallback": fallback(),
    "fallback, split": fallback("split"),
    "characters": Characters("".join(sorted(set(PROSE)))),
    "wordpiece": WordPieces.train([PROSE] * 9, 100),
    "words": Words.train([PROSE], 20),
}
BYTE_IDS = {
    "bytes": lambda byte: byte,
    "bpe": lambda byte: KINDS["bpe"].spec.vocabulary.index(byte_characters()[byte]),
    "fallback": lambda byte: 2 + byte,
    "fallback, split": lambda byte: 2 + byte,
}


def spelled(tokenizer, ids, before=()):
    machine = detokenizer(tokenizer, before)
    return [*(machine.add(token) for token in ids), machine.flush()]


def test_character_is_emitted_when_complete():
    pieces = spelled(Bytes(), "aé€😀".encode())
    assert "".join(pieces) == "aé€😀"
    assert pieces[:3] == ["a", "", "é"]


def test_invalid_bytes_are_flushed_as_replacement():
    assert set("".join(spelled(Bytes(), [0xFF] * 3))) == {"\ufffd"}
    assert spelled(Bytes(), b"a\xc3")[-1] == "\ufffd"


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xc3\xa9!",
        b"\xf0\x9f\xf0\x9f\x98\x80!",
        b"\xff" * 100 + "😀".encode() + b"\xe2\x82" * 40,
        b"\xe2\x82\xe2\x82\xac\xf0",
    ],
)
def test_invalid_bytes_do_not_drop_neighbours(data):
    """The streamed text equals the decoded text."""
    assert "".join(spelled(Bytes(), data)) == data.decode(errors="replace")


STRANGE = ("😀", "👩\u200d👧", "日本", "e\u0301", "\n", " ", "  ", "a", "ein", "Tag,", "é", ".")


def strange(tokenizer, generator, texts=STRANGE):
    """Tokens of a strange text, with any tokens at all in between."""
    ids = []
    for _ in range(generator.randrange(1, 12)):
        text = "".join(generator.choices(texts, k=generator.randrange(1, 5)))
        ids += tokenizer.encode(text).tolist()
        if generator.random() < 0.4:
            ids += generator.choices(range(tokenizer.size), k=generator.randrange(1, 6))
        if generator.random() < 0.4 and ids:
            del ids[generator.randrange(len(ids))]
    return ids or [0]


@pytest.mark.parametrize("kind", KINDS)
def test_streamed_text_equals_decoded_text(kind):
    generator, tokenizer = random.Random(0), KINDS[kind]
    for _ in range(300):
        ids = strange(tokenizer, generator, (*STRANGE, "\ufffd"))
        assert "".join(spelled(tokenizer, ids)) == tokenizer.decode(ids)


def common(texts):
    """The common prefix of all texts: that of the first and the last in sorted order."""
    first, last = min(texts), max(texts)
    pairs = enumerate(zip(first, last, strict=False))
    return first[: next((place for place, (a, b) in pairs if a != b), len(first))]


@pytest.mark.parametrize("kind", KINDS)
def test_characters_are_emitted_as_early_as_possible(kind):
    """Text is emitted exactly when no later token can change it."""
    generator, tokenizer = random.Random(1), KINDS[kind]
    following = [[token] for token in range(tokenizer.size)]
    if kind in BYTE_IDS:  # what may be the end of a character, of any length
        ends = (BYTE_IDS[kind](byte) for byte in range(0x80, 0xC0))
        following += [[token] * count for token in ends for count in (2, 3)]
    for _ in range(6):
        ids = strange(tokenizer, generator)[:9]
        machine, said = detokenizer(tokenizer), ""
        for place, token in enumerate(ids, 1):
            said += machine.add(token)
            now = tokenizer.decode(ids[:place])
            after = [tokenizer.decode([*ids[:place], *more]) for more in following]
            assert said == common([now, *after])
            assert machine.waiting == (said != now)


@pytest.mark.parametrize("kind", KINDS)
def test_continuation_after_prompt_equals_decoded_suffix(kind):
    generator, tokenizer = random.Random(2), KINDS[kind]
    for _ in range(50):
        first, second = (
            "".join(generator.choices(STRANGE, k=generator.randrange(1, 9))) for _ in range(2)
        )
        before, ids = tokenizer.encode(first).tolist(), tokenizer.encode(second).tolist()
        if before:
            known = tokenizer.decode(before)
            expected = tokenizer.decode([*before, *ids])[len(known) :]
            assert "".join(spelled(tokenizer, ids, before)) == expected


@pytest.mark.parametrize("kind", ["bytes", "bpe", "fallback"])
def test_completes_character_started_in_prompt(kind):
    tokenizer = KINDS[kind]
    *before, last = tokenizer.encode("日").tolist()
    assert "".join(spelled(tokenizer, [last], before)) == "日"


def test_byte_fallback_run_is_emitted_at_once():
    tokenizer = KINDS["fallback"]
    ids = [*tokenizer.encode("日本").tolist()[1:], tokenizer.encode("n").tolist()[-1]]
    assert spelled(tokenizer, ids) == [*[""] * 6, "日本n", ""]
    assert "".join(spelled(tokenizer, ids[:6])) == "日本"
    # Beyond repair: every byte is shown as soon as that is known.
    assert spelled(tokenizer, [*ids[:3], ids[4], ids[0]]) == [
        "",
        "",
        "",
        "\ufffd" * 4,
        "\ufffd",
        "",
    ]


def test_words_are_joined_with_spaces():
    words = Words(["good", "morning", "world"])
    pieces = spelled(words, words.encode("morning world"), before=words.encode("good"))
    assert "".join(pieces) == " morning world"


def test_byte_pairs_stream_equals_text():
    tokenizer = BytePairs.train(["ein schöner Tag, ein schönes Jahr 😀"] * 9, 300)
    text = "schöne Tage 😀"
    assert "".join(spelled(tokenizer, tokenizer.encode(text))) == text


def passed(stops, texts):
    """The texts that come through, and how many tokens it took to stop."""
    found = []
    for count, text in enumerate(texts, 1):
        found += [token.text for token in stops.add(Token(0, text, 1.0, 0.0, 0.0))]
        if stops.found:
            return found, count
    return found + [token.text for token in stops.flush()], None


@pytest.mark.parametrize(
    ("strings", "texts", "expected"),
    [
        (["END"], ["a", "E", "N", "D", "b"], (["a"], 4)),  # across token borders
        (["END"], ["aEN", "Db"], (["a"], 2)),  # inside two tokens
        (["END"], ["xENDy"], (["x"], 1)),
        (["END"], ["END"], ([], 1)),
        (["END"], ["E", "N", "x"], (["E", "N", "x"], None)),  # held, then let go
        (["aab"], ["a", "a", "a", "b"], (["a"], 4)),  # begins again inside itself
        (["\n\n", "."], ["one", "\n", "two", ".", "x"], (["one", "\n", "two"], 4)),
        (["END"], ["a", "EN"], (["a", "EN"], None)),  # the text ends first
        ([], ["a", "b"], (["a", "b"], None)),
    ],
)
def test_text_ends_before_stop_string(strings, texts, expected):
    assert passed(StopStrings(strings), texts) == expected


def test_holds_back_only_possible_stop_prefixes():
    stops = StopStrings(["END"])
    assert [token.text for token in stops.add(Token(0, "ab", 1.0, 0.0, 0.0))] == ["ab"]
    assert stops.add(Token(0, "E", 1.0, 0.0, 0.0)) == []


def test_rejects_empty_stop_string():
    with pytest.raises(ValueError, match=r"^a stop string is empty, so no text could begin"):
        StopStrings(["x", ""])
