"""Text that must have a form: choices by a tree of tokens, expressions by an automaton."""

import re

import pytest

from clearformer.generate.constrain import Choices, Expression, spellings
from clearformer.text import BytePairs, Bytes, Characters, Words

PAIRS = BytePairs.train(["yes and no and yes, 12 or 2026 ö"] * 9, 290)


def accepts(constraint, ids):
    """Whether the automaton takes these tokens and may end after them."""
    state = constraint.start
    for token in ids:
        if token not in constraint.allowed(state).tolist():
            return False
        state = constraint.after(state, token)
    return constraint.may_end(state)


@pytest.mark.parametrize("tokenizer", [Bytes(), Characters("aenosy"), PAIRS])
def test_choices_are_taken_and_nothing_else(tokenizer):
    choices = Choices(["yes", "no", "nose"], tokenizer)
    for text in ("yes", "no", "nose"):
        assert accepts(choices, tokenizer.encode(text).tolist())
    for text in ("ye", "n", "nos", "yess", "a"):
        assert not accepts(choices, tokenizer.encode(text).tolist())


@pytest.mark.parametrize("pattern", [r"[0-9]{2,4}", r"(yes|no)( and (yes|no))*", r"ö+", r".o"])
@pytest.mark.parametrize("tokenizer", [Bytes(), PAIRS])
def test_expressions_accept_what_the_language_does(pattern, tokenizer):
    expression = Expression(pattern, tokenizer)
    for text in ("12", "2026", "20261", "yes", "yes and no", "yes and", "ö", "öö", "no", "po"):
        whole = re.fullmatch(pattern, text) is not None
        assert accepts(expression, tokenizer.encode(text).tolist()) == whole, text


def test_every_spelling_of_a_match_is_accepted():
    expression = Expression("(yes|no)+", PAIRS)
    whole, letters = PAIRS.encode("yes").tolist(), [PAIRS.encode(c)[0] for c in "yes"]
    assert len(whole) < len(letters)
    assert accepts(expression, whole + letters)


def test_every_token_spells_its_bytes():
    text = "yes, 2026 ö €"
    for tokenizer in (Bytes(), PAIRS, Characters("".join(sorted(set(text))))):
        table = spellings(tokenizer)
        assert len(table) == tokenizer.size
        assert b"".join(table[token] for token in tokenizer.encode(text)) == text.encode()


def test_a_choice_that_cannot_be_encoded_is_said():
    message = r"^the choice 'maybe' cannot be encoded: this tokenizer .characters. makes"
    with pytest.raises(ValueError, match=message):
        Choices(["yes", "maybe"], Characters("esy"))
    with pytest.raises(ValueError, match=r"^the choice '' cannot be encoded"):
        Choices([""], Bytes())
    with pytest.raises(ValueError, match=r"^there are no choices: give at least one"):
        Choices([], Bytes())


def test_words_do_not_spell():
    with pytest.raises(ValueError, match=r"which those of a words tokenizer do not: use --choices"):
        Expression("a+", Words(["a"]))
