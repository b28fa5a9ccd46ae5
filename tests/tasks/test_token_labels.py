"""Token classification: encoding, entity spans, training, evaluation and `label`."""

import json

import numpy as np
import pytest
import torch

import clearformer as cf
from clearformer.data.examples import IGNORE
from clearformer.data.split_words import as_words
from clearformer.data.tagged_files import read_tagged
from clearformer.tasks.token_labels import (
    Entity,
    encode_sentences,
    entities,
    f1,
    marks_spans,
    token_report,
)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("O O O", []),
        ("B-X I-X O B-Y", [(0, 2, "X"), (3, 4, "Y")]),
        ("B-X B-X", [(0, 1, "X"), (1, 2, "X")]),
        ("I-X I-Y", [(0, 1, "X"), (1, 2, "Y")]),  # as conlleval: another label begins a span
        ("O I-X I-X", [(1, 3, "X")]),
        ("S-X B-Y I-Y E-Y I-Y", [(0, 1, "X"), (1, 4, "Y"), (4, 5, "Y")]),
        ("B-A-B I-A-B", [(0, 2, "A-B")]),
    ],
)
def test_entities_from_labels(labels, expected):
    assert entities(labels.split()) == [Entity(*each) for each in expected]


def test_detects_span_labels():
    assert marks_spans(["O", "B-PER", "I-PER"])
    assert not marks_spans(["NOUN", "VERB"])
    assert not marks_spans(["O"])


def test_f1_is_the_harmonic_mean():
    precision, recall = 3 / 4, 3 / 6
    assert f1(3, 4, 6) == pytest.approx(2 * precision * recall / (precision + recall))
    assert f1(0, 0, 0) == 0


def test_target_is_at_first_token_of_each_word(tiny_bert):
    tokenizer = cf.load(tiny_bert).tokenizer
    words = as_words(["mary", "xqz", "rome"])  # the second has several pieces
    rows = encode_sentences([words], [[1, 2, 3]], tokenizer, 48)
    (row,) = rows.examples.rows
    whole = [*tokenizer.prefix_ids, *tokenizer.encode("mary xqz rome"), *tokenizer.suffix_ids]
    assert row.tokens.tolist() == whole
    positions = rows.positions[0].tolist()
    assert row.target[positions].tolist() == [1, 2, 3]
    assert (np.delete(row.target, positions) == IGNORE).all()
    assert row.target[0] == IGNORE


@pytest.mark.parametrize("length", [5, 6, 9, 30])
def test_long_sentence_is_split_without_losing_words(tiny_bert, length):
    tokenizer = cf.load(tiny_bert).tokenizer
    words = as_words(["mary", "lives", "in", "rome", "."] * 3)
    rows = encode_sentences([words], [list(range(15))], tokenizer, length)
    labelled = [t for row in rows.examples.rows for t in row.target.tolist() if t != IGNORE]
    assert labelled == list(range(15))
    assert all(len(row.tokens) <= length for row in rows.examples.rows)
    firsts = zip(rows.first_words, rows.positions, strict=True)
    assert [first + n for first, places in firsts for n in range(len(places))] == list(range(15))


def test_word_longer_than_row_keeps_its_label(tiny_bert):
    tokenizer = cf.load(tiny_bert).tokenizer
    rows = encode_sentences([as_words(["q" * 9, "rome"])], [[1, 2]], tokenizer, 4)
    assert [t for row in rows.examples.rows for t in row.target.tolist() if t >= 0] == [1, 2]


def test_rejects_too_short_row(tiny_bert):
    tokenizer = cf.load(tiny_bert).tokenizer
    with pytest.raises(ValueError, match="the length is 2, but a row needs room for a token"):
        encode_sentences([as_words(["a"])], None, tokenizer, 2)


def test_report_counts_spans(tmp_path):
    (tmp_path / "a.conll").write_text("a B-X\nb I-X\nc O\n\nd B-Y\n")
    sentences = read_tagged(tmp_path / "a.conll")
    names = ("O", "B-X", "I-X", "B-Y")
    guesses = [["B-X", "O", "O"], ["B-Y"]]  # the first span is too short
    tables = [torch.eye(4)[[names.index(each) for each in row]] for row in guesses]
    found = token_report(tables, sentences, names)
    assert found.by_label == {"X": (0, 1, 1), "Y": (1, 1, 1)}
    assert found.metrics["f1"] == pytest.approx(0.5)
    assert found.metrics["accuracy"] == 0.75
    assert "F1           0.5000 (spans, label and both ends right)" in found.lines()


def test_report_averages_f1_over_plain_labels(tmp_path):
    (tmp_path / "a.conll").write_text("a N\nb V\nc N\n")
    sentences = read_tagged(tmp_path / "a.conll")
    tables = [torch.eye(2)[[0, 1, 1]]]
    found = token_report(tables, sentences, ("N", "V"))
    assert found.metrics["f1"] == pytest.approx((2 / 3 + 2 / 3) / 2)
    assert "mean over labels" in found.lines()[0]


def test_learns_to_label_names(homes, finetune, tmp_path):
    (tmp_path / "homes.conll").write_text(homes["conll"](homes["draw"](200, people=1)))
    model = finetune("label", tmp_path / "homes.conll", tmp_path / "run")
    assert model.config.head.names == ("O", "B-LOC", "B-PER", "I-LOC")
    found = model.evaluate()
    assert found.metrics["f1"] > 0.95
    assert "held back by the run" in str(found)
    labelled = model.label("mary lives in new york.")
    assert labelled.words == ("mary", "lives", "in", "new", "york", ".")
    assert labelled.entities == [("mary", "PER"), ("new york", "LOC")]
    assert model.label([["john", "lives", "in", "rome"]])[0].labels == ("B-PER", "O", "O", "B-LOC")
    assert model.label([]) == []
    assert model.label("").words == ()
    assert model.embed("mary").shape == (32,)


def test_resumed_run_is_bit_identical(homes, tiny_bert, tmp_path):
    (tmp_path / "homes.conll").write_text(homes["conll"](homes["draw"](40, people=1)))

    def training(out, **options):
        return cf.Training(
            "label", from_=tiny_bert, data=tmp_path / "homes.conll", out=tmp_path / out, steps=6,
            quiet=True, threads=1, compile="off", evaluations=1, **options,
        )  # fmt: skip

    whole = training("whole").run()
    stopped = training("stopped")
    for event in stopped:
        if getattr(event, "step", 0) == 3:
            stopped.stop()
    again = cf.train(out=tmp_path / "stopped", resume=True, quiet=True)
    weights = zip(whole.module.parameters(), again.module.parameters(), strict=True)
    assert all(one.equal(other) for one, other in weights)


def test_rejects_label_unseen_in_training(homes, finetune, tmp_path):
    (tmp_path / "homes.conll").write_text(homes["conll"](homes["draw"](40, people=1)))
    model = finetune("label", tmp_path / "homes.conll", tmp_path / "run", steps=1)
    (tmp_path / "more.conll").write_text("mary B-ANIMAL\n")
    with pytest.raises(
        ValueError, match=r"labels that are not in the training data \('B-ANIMAL'\)"
    ):
        model.evaluate(tmp_path / "more.conll")


def test_trains_from_json_lists(homes, finetune, tmp_path):
    rows = [{"words": ["mary", "in", "rome"], "tags": ["P", "O", "L"]}] * 12
    rows += [
        {"words": ["john", "in", "oslo", str(n)], "tags": ["P", "O", "L", "O"]} for n in range(9)
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    columns = {"text_column": "words", "label_column": "tags"}
    model = finetune("label", tmp_path / "a.jsonl", tmp_path / "run", steps=1, **columns)
    assert model.config.head.names == ("O", "L", "P")


def test_missing_data_error_names_the_flag(tiny_bert, tmp_path):
    with pytest.raises(ValueError, match="a token classifier learns from a file of yours: give it"):
        cf.train("label", from_=tiny_bert, out=tmp_path / "run", quiet=True)


def test_rejects_single_label(finetune, tmp_path):
    (tmp_path / "a.conll").write_text("\n\n".join(f"word{n} O" for n in range(20)))
    with pytest.raises(ValueError, match="a token classifier needs at least two labels, but there"):
        finetune("label", tmp_path / "a.conll", tmp_path / "run")


@pytest.mark.parametrize("texts", [5, [5], [[5]], [["a", " "]]])
def test_rejects_invalid_texts(homes, finetune, tmp_path, texts):
    (tmp_path / "homes.conll").write_text(homes["conll"](homes["draw"](40, people=1)))
    model = finetune("label", tmp_path / "homes.conll", tmp_path / "run", steps=1)
    with pytest.raises(ValueError, match=r"texts(\[0\])? is .*, but it must be a string"):
        model.label(texts)
