"""Regular expressions as automata: same matches as Python's re."""

import re

import pytest

from clearformer.generate.regex_automaton import automaton, opposite, utf8

PATTERNS = [
    "", "a", "abc", "a|b", "a||b", "a*", "(ab)*", "(ab)+c", "(?:a|bc){2}", "a{2,3}b?", "a{,2}",
    "a{2,}", "(a{2}){2}", "[a-c]+", "[^a-c]", "[]a]+", "[^]]", "[a-]", "[.*]", r"\d+\.\d{2}",
    r"\w+( \w+)*", r"\S+", r"[\d,]+", r"\u00f6+", "ö+", "[ä-ü]*", ".", ".*o", "a+?b", "^ab$",
    r"a\$", "(a|b)*abb", "((a*)*)*", r"\t\n?", "😀|€",
]  # fmt: skip
TEXTS = [
    "", "a", "b", "c", "]", "-", ".", "*", "ab", "abc", "ababc", "abab", "aa", "aaa", "aaaa", "aab",
    "abcbc", "bcbc", "abca", "12.50", "1.5", "1,000", "ö", "öö", "äü", "no", "two words", " ", "\n",
    "\t", "\t\n", "a$", "aabb", "babb", "😀", "€", "é", "x\ny",
]  # fmt: skip


def matches(pattern, text):
    machine, states = automaton(pattern)
    for byte in text.encode():
        states = machine.step(states, byte)
    return machine.end in states


@pytest.mark.parametrize("pattern", PATTERNS)
def test_matches_same_texts_as_python_re(pattern):
    theirs = re.compile(pattern, re.ASCII)
    for text in TEXTS:
        assert matches(pattern, text) == (theirs.fullmatch(text) is not None), text


def test_dead_state_when_no_match_can_follow():
    machine, states = automaton("ab|ac")
    states = machine.step(states, ord("a"))
    assert states
    assert not machine.step(states, ord("x"))


@pytest.mark.parametrize(("low", "high"), [(0, 0x10FFFF), (0x7E, 0x801), (0x900, 0x12345)])
def test_utf8_ranges_cover_exactly_the_characters(low, high):
    rows = utf8(low, high)

    def inside(character):
        spelled = character.encode()
        return sum(
            len(row) == len(spelled)
            and all(first <= byte <= last for byte, (first, last) in zip(spelled, row, strict=True))
            for row in rows
        )

    edges = {0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF, low, high}
    near = {code + step for code in edges for step in (-1, 0, 1)}
    for code in (c for c in near if 0 <= c <= 0x10FFFF and not 0xD800 <= c <= 0xDFFF):
        assert inside(chr(code)) == (low <= code <= high), hex(code)


def test_double_complement_is_identity():
    ranges = ((5, 9), (20, 20))
    assert opposite(ranges) == ((0, 4), (10, 19), (21, 0x10FFFF))
    assert opposite(opposite(ranges)) == ranges


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("[a", "it ends too early"),
        ("(a", "a ( is not closed"),
        ("a)", "a ) has no matching ("),
        ("*a", "* repeats nothing"),
        ("a{x}", "{x} is not a repetition count"),
        ("a{2", "{2 is not a repetition count"),
        ("a{3,2}", "{3,2} has a minimum above its maximum"),
        ("(?=a)b", "(? is supported only as (?:"),
        (r"(a)\1", r"\1 is not supported"),
        (r"\bx", r"\b is not supported"),
        (r"\xg1", r"\xg1 is not a character"),
        ("a^b", "^ in the middle of a pattern matches nothing"),
        ("[b-a]", "a class has a range whose end is before its start or is not a character"),
        ("(a{999}){999}", "it needs more than 20,000 states"),
        ("a\\", "it ends too early"),
    ],
)
def test_rejects_unsupported_syntax(pattern, problem):
    with pytest.raises(ValueError, match=r"cannot be used") as refused:
        automaton(pattern)
    said = str(refused.value).replace("{2}", "{2")
    assert said == f"the pattern {pattern!r} cannot be used: {problem}"


@pytest.mark.parametrize("pattern", ["(" * 101 + "a" + ")" * 101, "a" + "*+" * 51])
def test_rejects_deeply_nested_pattern(pattern):
    message = r"^the pattern .{1,200} cannot be used: it is nested too deeply: remove some groups"
    with pytest.raises(ValueError, match=message):
        automaton(pattern)
    automaton("(" * 100 + "a" + ")" * 100 + "(b*)*" * 60)  # side by side is not deep
