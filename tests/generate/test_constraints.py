"""Constrained generation: choices by a token trie, regular expressions by an automaton."""

import random
import re

import pytest

from clearformer.generate.constraints import (
    ChoiceConstraint,
    RegexConstraint,
    encode_continuation,
    spellings,
)
from clearformer.generate.detokenize import detokenizer
from clearformer.text import ByteFallbackPairs, BytePairs, Bytes, Characters, Words
from clearformer.text.byte_fallback import BYTES, SPACE, FallbackSpec

MERGES = ((SPACE, "y"), ("e", "s"), (SPACE + "y", "es"), ("y", "es"))
LLAMA = ByteFallbackPairs(
    FallbackSpec(("<unk>", *BYTES, SPACE, "y", "e", "s", *map("".join, MERGES)), MERGES)
)
PAIRS = BytePairs.train(["yes and no and yes, 12 or 2026 ö"] * 9, 290)


def accepts(constraint, ids):
    """Whether the automaton accepts these tokens and may end after them."""
    state = constraint.start
    for token in ids:
        if token not in constraint.allowed(state).tolist():
            return False
        state = constraint.after(state, token)
    return constraint.may_end(state)


@pytest.mark.parametrize("tokenizer", [Bytes(), Characters("aenosy"), PAIRS])
def test_accepts_exactly_the_choices(tokenizer):
    choices = ChoiceConstraint(["yes", "no", "nose"], tokenizer)
    for text in ("yes", "no", "nose"):
        assert accepts(choices, tokenizer.encode(text).tolist())
    for text in ("ye", "n", "nos", "yess", "a"):
        assert not accepts(choices, tokenizer.encode(text).tolist())


@pytest.mark.parametrize("pattern", [r"[0-9]{2,4}", r"(yes|no)( and (yes|no))*", r"ö+", r".o"])
@pytest.mark.parametrize("tokenizer", [Bytes(), PAIRS, LLAMA])
def test_regex_constraint_matches_python_re(pattern, tokenizer):
    expression = RegexConstraint(pattern, tokenizer)
    for text in ("12", "2026", "20261", "yes", "yes and no", "yes and", "ö", "öö", "no", "po"):
        whole = re.fullmatch(pattern, text) is not None
        assert accepts(expression, tokenizer.encode_continuation(text).tolist()) == whole, text


def test_accepts_every_tokenization_of_a_match():
    expression = RegexConstraint("(yes|no)+", PAIRS)
    whole, letters = PAIRS.encode("yes").tolist(), [PAIRS.encode(c)[0] for c in "yes"]
    assert len(whole) < len(letters)
    assert accepts(expression, whole + letters)


def test_spellings_give_bytes_of_every_token():
    text = "yes, 2026 ö €"
    for tokenizer in (Bytes(), PAIRS, Characters("".join(sorted(set(text)))), LLAMA):
        table = spellings(tokenizer)
        assert len(table) == tokenizer.size
        assert (
            b"".join(table[token] for token in tokenizer.encode_continuation(text)) == text.encode()
        )


def test_rejects_choice_that_cannot_be_encoded():
    message = r"^the choice 'maybe' cannot be encoded: this tokenizer .characters. makes"
    with pytest.raises(ValueError, match=message):
        ChoiceConstraint(["yes", "maybe"], Characters("esy"))
    with pytest.raises(ValueError, match=r"^the choice '' cannot be encoded"):
        ChoiceConstraint([""], Bytes())
    with pytest.raises(ValueError, match=r"^there are no choices: give at least one"):
        ChoiceConstraint([], Bytes())


def test_regex_constraint_rejects_words_tokenizer():
    with pytest.raises(ValueError, match=r"which a words tokenizer does not: use --choices"):
        RegexConstraint("a+", Words(["a"]))


STUCK = ["a☃b|ab", "(a☃)*b", "☃*b?", "[a-z]*(☃|ba)", "a(b|☃(a|b))*", "[ab]{3}", "(aa|ab☃)+b"]


@pytest.mark.parametrize("pattern", STUCK)
@pytest.mark.parametrize(
    ("tokenizer", "banned"),
    [
        (Characters("abö"), ()),
        (Bytes(), ()),
        (Bytes(), range(0x80, 256)),  # no snowman, as in the first one
        (PAIRS, [PAIRS.encode("a")[0] + 1, *PAIRS.encode("☃")[:1].tolist()]),
        (LLAMA, ()),  # its letters are bytes, but for y, e and s
    ],
)
def test_every_allowed_token_can_be_completed(pattern, tokenizer, banned):
    """After any allowed token, a match can be completed without banned tokens."""
    generator, form = random.Random(0), None
    try:
        form = RegexConstraint(pattern, tokenizer, banned)
    except ValueError as refused:
        assert "without the banned ones" in str(refused)  # noqa: PT017
    for _ in range(30 if form else 0):
        state, ids = form.start, []
        for _ in range(40):
            allowed = form.allowed(state).tolist()
            assert allowed or form.may_end(state)
            if not allowed or (form.may_end(state) and generator.random() < 0.5):
                assert re.fullmatch(pattern, tokenizer.decode(ids))
                break
            ids.append(generator.choice(allowed))
            assert ids[-1] not in banned
            state = form.after(state, ids[-1])


def test_byte_fallback_tokens_mix_with_letters():
    """Of LLAMA's tokens y, e, s and some pairs are letters, all else is bytes."""
    form, names = RegexConstraint("(y☃e|ye s)+", LLAMA), LLAMA.spec.vocabulary
    snow = [names.index(BYTES[byte]) for byte in "☃".encode()]
    y, e, s, space = (names.index(letter) for letter in ("y", "e", "s", SPACE))
    for ids in ([y, *snow, e], [y, e, space, s], [y, e, space, s, y, *snow, e]):
        assert accepts(form, ids)
        assert re.fullmatch("(y☃e|ye s)+", LLAMA.decode(ids))
    for ids in ([y, *snow[:2], e], [y, *snow], [space, y, *snow, e], [0, y, *snow, e]):
        assert not accepts(form, ids)


def test_rejects_pattern_that_no_tokens_can_match():
    message = (
        r"^the pattern 'a☃b' cannot be used: no text that matches it can be made of the "
        r"tokens of this tokenizer .characters.$"
    )
    with pytest.raises(ValueError, match=message):
        RegexConstraint("a☃b", Characters("ab"))
    with pytest.raises(ValueError, match=r"tokenizer .bytes., without the banned ones$"):
        RegexConstraint("[ab]+", Bytes(), banned=b"ab")
    with pytest.raises(ValueError, match=r"cannot be used: no text that matches it can be made"):
        RegexConstraint(r"a\ud800", Bytes())


def test_banned_byte_may_be_part_of_another_token():
    whole = PAIRS.encode("yes").tolist()
    assert len(whole) == 1
    assert accepts(RegexConstraint("(yes)+", PAIRS, banned=PAIRS.encode("e").tolist()), whole)


def test_excludes_choices_that_need_banned_tokens():
    choices = ChoiceConstraint(["yes", "no"], Bytes(), banned=b"y")
    assert accepts(choices, b"no")
    assert choices.allowed(choices.start).tolist() == [*b"n"]
    message = r"^no choice is left: a banned token is needed for 'yes' and for 'no'$"
    with pytest.raises(ValueError, match=message):
        ChoiceConstraint(["yes", "no"], Bytes(), banned=b"yn")


@pytest.mark.parametrize("text", ["yes", " yes", "y", " ", "  yes", "日本 yes", "\n"])
@pytest.mark.parametrize("tokenizer", [Bytes(), PAIRS, LLAMA])
def test_encode_continuation_adds_exactly_its_text(tokenizer, text):
    speller = detokenizer(tokenizer, tokenizer.encode("es"))
    ids = encode_continuation(text, tokenizer, "the choice")
    assert "".join(map(speller.add, ids)) + speller.flush() == text


def test_encode_continuation_rejects_text_that_would_change():
    message = (
        r"^--forced 'Good' cannot be encoded: this tokenizer .words. makes ' good' of it after a "
        r"prompt, so give ' good'$"
    )
    with pytest.raises(ValueError, match=message):
        encode_continuation("Good", Words(["good"]), "--forced")
    assert encode_continuation(" good", Words(["good"]), "--forced") == (2,)
    with pytest.raises(
        ValueError, match=r"makes ' \[unknown\]' of it .* no text could ever be it$"
    ):
        encode_continuation("bad", Words(["good"]), "--forced")
