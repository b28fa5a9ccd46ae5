"""Parser errors: one sentence each, without the parser's frame."""

import pytest

LAYER = "--layer is 'one', but it must be a whole number"
NEEDED = "attend needs TEXT: the words to attend to; see clearformer attend --help"
NOT_TAKEN = "does not take 'b': quote a text with spaces, or see clearformer generate --help"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("attend ab --layr 1", "attend has no flag --layr: did you mean --layer?"),
        ("attend ab --xyzzy", "attend has no flag --xyzzy: see clearformer attend --help"),
        ("attend ab --layer one", LAYER),
        ("attend ab --layer=one", LAYER),
        ("attend", NEEDED),
        ("attend ab --mask some", "--mask is 'some', but it must be one of model, none, causal"),
        ("attend ab --layer", "--layer needs a value: a whole number"),
        (
            "generate r a --temperature hot",
            "--temperature is 'hot', but it must be a number or none",
        ),
        ("generate r a b", f"generate {NOT_TAKEN}"),
        ("train --laers 3", "train has no flag --laers: did you mean --layers?"),
        ("train --minutes x", "--train.minutes is 'x', but it must be a number or none"),
        ("completion ksh", "SHELL is 'ksh', but it must be one of bash, zsh, tcsh, fish"),
    ],
)
def test_parser_errors_are_one_sentence(clearformer, words, sentence):
    assert clearformer(*words.split()).complaint == sentence


def test_validation_error_keeps_its_sentence(clearformer):
    told = clearformer("train", "--layers", "0").complaint
    assert "layers is 0, but it must be between 1 and" in told
