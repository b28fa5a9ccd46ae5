"""`clearformer attend`: the printed numbers match the equations."""

import re

import pytest
import torch

import clearformer as cf
from clearformer.cli.attend import word_vectors
from clearformer.core.basic import attend

SENTENCE = "mary gave roses to susan"


def row(text, start):
    """The numbers of the first line that starts with these words."""
    line = next(line for line in text.splitlines() if line.startswith(start))
    return [
        float(number.replace("−", "-").replace("∞", "inf"))
        for number in re.findall(r"−?(?:\d+\.\d+|∞)", line.removeprefix(start))
    ]


def test_prints_basic_self_attention(clearformer):
    text = clearformer("attend", SENTENCE).out
    x = word_vectors(SENTENCE.split(), width=4, seed=0)
    raw = x @ x.T
    assert row(text, "q·k") == [round(value, 2) for value in raw[1].tolist()]
    assert row(text, "softmax") == [round(value, 2) for value in raw[1].softmax(-1).tolist()]
    assert "the weights sum to 1.000" in text
    shown = row(text, "     = ")
    torch.testing.assert_close(torch.tensor(shown), attend(x)[1], rtol=0, atol=0.0051)


def test_every_row_of_weights_sums_to_one(clearformer):
    text = clearformer("attend", SENTENCE).out
    for word in SENTENCE.split():
        assert row(text, f"{word} ")[-1] == 1.0


def test_equal_words_have_equal_vectors(clearformer):
    vectors = word_vectors(["a", "b", "a"], 4, seed=3)
    assert vectors[0].equal(vectors[2])
    assert not vectors[0].equal(vectors[1])
    assert not vectors[0].equal(word_vectors(["a"], 4, seed=4)[0])


def test_query_may_be_word_or_number(clearformer):
    by_word = clearformer("attend", SENTENCE, "--query", "roses").out
    assert by_word == clearformer("attend", SENTENCE, "--query", "2").out
    assert "the word roses looks" in by_word


def test_causal_mask_hides_later_words(clearformer):
    text = clearformer("attend", SENTENCE, "--mask", "causal").out
    assert row(text, "mask")[2:] == [float("-inf")] * 3
    assert row(text, "softmax")[2:] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "model", ["gpt2-small", "bert-tiny", "original-small", "modern", "sparse", "classifier"]
)
def test_prints_head_of_model(clearformer, model):
    text = clearformer("attend", SENTENCE, "--model", model, "--layer", "1", "--head", "1").out
    assert "(random weights), layer 1, head 1" in text
    root = float(re.search(r"÷ √(\d+)", text)[1]) ** 0.5
    raw, scaled = row(text, "q·k"), row(re.sub(r"÷ √\d+", "÷", text), "÷")
    assert scaled == pytest.approx([value / root for value in raw], abs=0.006)
    for word in SENTENCE.split():
        assert row(text, f"{word} ")[-1] == 1.0


def test_transformer_xl_prints_distance_bias(clearformer):
    text = clearformer("attend", SENTENCE, "--model", "xl", "--mask", "none").out
    scaled, bias = row(re.sub(r"÷ √\d+", "÷", text), "÷"), row(text, "+ bias")
    expected = [a + b for a, b in zip(scaled, bias, strict=True)]
    assert row(text, "mask") == pytest.approx(expected, abs=0.011)


def errors(text):
    return [float(error) for error in re.findall(r"P f\(x\)\| = (\S+),", text)]


def test_shuffling_permutes_outputs(clearformer):
    (error,) = errors(clearformer("attend", SENTENCE, "--shuffle").out)
    assert error < 1e-5


def test_shuffling_shows_that_positions_break_the_symmetry(clearformer):
    text = clearformer("attend", SENTENCE, "--model", "gpt2", "--shuffle").out
    without, with_positions = errors(text)
    assert without < 1e-5
    assert with_positions > 1e-3
    assert "order matters" in text


def test_writes_picture(clearformer, tmp_path):
    picture = tmp_path / "out.png"
    assert clearformer("attend", SENTENCE, "--picture", str(picture)).code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_markup_in_words_is_not_interpreted(clearformer):
    text = clearformer("attend", "[/bold] <b> [red]x").out
    assert "[/bold]" in text
    assert "[red]x" in text


def test_single_word_attends_to_itself(clearformer):
    assert "the word alone looks" in clearformer("attend", "alone").out


def test_reports_truncated_table(clearformer):
    assert "of 40 words" in clearformer("attend", " ".join(f"word{i}" for i in range(40))).out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((" ",), "the text has no words: give some, as in clearformer attend 'to be'"),
        (
            ("a b", "--query", "c"),
            "query is 'c', but it must be one of the words (a, b) or a number from 0 to 1",
        ),
        (("a b", "--width", "0"), "width is 0, but a vector has at least 1 number"),
        (
            ("a b", "--model", "gpt2", "--layer", "12"),
            "layer is 12, but gpt2-small has layers 0 to 11",
        ),
        (
            ("a b", "--model", "gpt2", "--head", "-1"),
            "head is -1, but gpt2-small has heads 0 to 11",
        ),
        (("a b", "--model", "gpt3"), "there is no model 'gpt3': did you mean 'gpt2'?"),
        (("a b", "--picture", "x.doc"), "the picture 'x.doc' must end in one of .png, .svg, .pdf"),
    ],
)
def test_rejects_invalid_input(clearformer, arguments, complaint):
    outcome = clearformer("attend", *arguments)
    assert outcome.complaint == complaint
    assert outcome.out == ""


def test_rejects_picture_in_missing_folder(clearformer, tmp_path):
    outcome = clearformer("attend", "a b", "--picture", str(tmp_path / "no" / "x.png"))
    assert outcome.complaint == f"there is no folder {tmp_path / 'no'} to write x.png into"


def test_rejects_text_longer_than_positions(clearformer):
    words = " ".join(["word"] * 300)
    complaint = clearformer("attend", words, "--model", "generator").complaint
    assert complaint.startswith("the sequence has 300 tokens, but the learned positions end at 256")


# --- trained models ------------------------------------------------------------------------


def test_shows_head_of_trained_model(clearformer, run):
    asked = ("attend", "9 green", "--model", run, "--head", "1")
    text = clearformer(*asked).out
    found = cf.load(run).attend("9 green", head=1)
    assert f"{run}, layer 0, head 1" in text
    assert row(text, "softmax") == [round(value, 2) for value in found.weights[1].tolist()]
    assert clearformer(*asked, "--query", "1").out == text
    by_token = clearformer(*asked, "--query", "n").out
    assert "the word n looks" in by_token
    assert row(by_token, "softmax") == [round(value, 2) for value in found.weights[-1].tolist()]


def test_saves_figure_of_trained_model(clearformer, run, tmp_path):
    picture = tmp_path / "head.svg"
    outcome = clearformer("attend", "9 green", "--model", run, "--picture", str(picture))
    assert outcome.code == 0
    assert "layer 0, head 0" in picture.read_text()


def test_shuffles_tokens_of_trained_model(clearformer, run):
    without, with_positions = errors(
        clearformer("attend", "9 green", "--model", run, "--shuffle").out
    )
    assert without < 1e-5 < with_positions


def test_preset_takes_precedence_over_folder(clearformer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2").mkdir()
    assert "gpt2-small (random weights)" in clearformer("attend", "a b", "--model", "gpt2").out
    complaint = clearformer("attend", "a b", "--model", "./gpt2").complaint
    assert complaint.startswith("gpt2 is not a run and not a Hugging Face folder")


def test_rejects_missing_model(clearformer):
    complaint = clearformer("attend", "a b", "--model", "runs/none").complaint
    assert complaint.startswith("there is no folder or file runs/none: give a run")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--layer", "1"), "layer is 1, but {} has layers 0 to 0"),
        (("--head", "4"), "head is 4, but {} has heads 0 to 3"),
        (("--part", "cross"), "--part is 'cross', but {} has self: choose one of them"),
        (("--target", "x"), "--target is for translators, but {} is a generator: leave it out"),
        (
            ("--query", "z"),
            "query is 'z', but it must be one of the words (9, ·, g, r, e, e, n) or a number from "
            "0 to 6",
        ),
    ],
)
def test_rejects_invalid_input_for_trained_model(clearformer, run, arguments, complaint):
    outcome = clearformer("attend", "9 green", "--model", run, *arguments)
    assert outcome.complaint == complaint.format(run)
    assert outcome.out == ""


def test_rejects_part_for_untrained_model(clearformer):
    complaint = clearformer("attend", "a b", "--model", "original", "--part", "cross").complaint
    assert complaint == "--part is for a trained translator: give it as --model"
