"""Sentence pairs: encoding, training, evaluation and `classify`."""

import pytest

import clearformer as cf
from clearformer.config import PairClassifier
from clearformer.data.examples import cut_pair
from clearformer.runs.compare_classifiers import compare
from clearformer.table_options import TableOptions
from clearformer.tasks.sentence_pairs import encode_pairs, read_text_pairs
from clearformer.tasks.task import EvaluationOptions


@pytest.fixture
def tokenizer(tiny_bert):
    return cf.load(tiny_bert).tokenizer


def test_row_contains_both_texts_with_segments(tokenizer):
    examples, cut = encode_pairs([("mary lives", "in rome")], [1], tokenizer, 48)
    (row,) = examples.rows
    marks = tokenizer.specials
    first, second = tokenizer.encode("mary lives").tolist(), tokenizer.encode("in rome").tolist()
    assert row.tokens.tolist() == [marks["[CLS]"], *first, marks["[SEP]"], *second, marks["[SEP]"]]
    assert row.segments.tolist() == [0] * (2 + len(first)) + [1] * (len(second) + 1)
    assert (int(row.target), cut) == (1, [False])


@pytest.mark.parametrize(
    ("lengths", "kept"),
    [((3, 4), (3, 4)), ((20, 3), (7, 3)), ((3, 20), (3, 7)), ((20, 20), (5, 5)), ((6, 9), (5, 5))],
)
def test_longer_text_is_truncated_first(lengths, kept):
    assert cut_pair(*lengths, 10) == kept


def test_truncated_pair_fills_the_row(tokenizer):
    examples, cut = encode_pairs([("mary " * 20, "in rome")], [0], tokenizer, 12)
    assert len(examples.rows[0].tokens) == 12
    assert cut == [True]
    assert examples.rows[0].tokens.tolist()[-3:-1] == tokenizer.encode("in rome").tolist()


def test_rejects_too_short_context(tokenizer):
    with pytest.raises(ValueError, match="the length is 4, but a pair needs at least 5"):
        encode_pairs([("a", "b")], [0], tokenizer, 4)


def test_learns_from_both_texts(homes, finetune, tmp_path):
    (tmp_path / "pairs.csv").write_text(homes["pairs"](homes["draw"](400)))
    model = finetune("classify-pairs", tmp_path / "pairs.csv", tmp_path / "run", steps=120)
    assert isinstance(model.config.head, PairClassifier)
    assert model.evaluate().metrics["accuracy"] > 0.95  # one of the texts alone: 0.76 at most
    south, north = "mary lives in rome .", "john lives in oslo ."
    pairs = [(south, south), (south, north), (north, south), (north, north)]
    assert [each.label for each in model.classify(pairs)] == ["warm", "cold", "cold", "cold"]
    one = model.classify(pairs[1])
    assert (one.text, one.second, one.label) == (*pairs[1], "cold")
    assert one.texts == {"text": south, "second": north}
    other = model.classify([pairs[2]])[0]
    assert other.probabilities != one.probabilities  # the order matters
    with pytest.raises(
        ValueError, match="is a classifier of pairs: give each text as a pair, as in"
    ):
        model.classify("mary")
    with pytest.raises(ValueError, match="is a classifier of pairs: give each text as a pair"):
        model.classify(["mary", "rome"])


def test_custom_columns_and_unknown_labels(homes, finetune, tmp_path):
    text = homes["pairs"](homes["draw"](40)).replace("text,second,label", "premise,claim,verdict")
    (tmp_path / "nli.csv").write_text(text)
    columns = {"text_column": "premise", "second_column": "claim", "label_column": "verdict"}
    model = finetune("classify-pairs", tmp_path / "nli.csv", tmp_path / "run", steps=1, **columns)
    assert model.evaluate(tmp_path / "nli.csv").report.total == 40
    (tmp_path / "b.csv").write_text("a,b,c\nx,y,warm\nx,y,unsure\n")
    asked = {"text": "a", "second": "b", "label": "c"}
    with pytest.raises(ValueError, match="1 rows have labels that are not in the training data"):
        model.evaluate(tmp_path / "b.csv", **asked)
    found = model.evaluate(tmp_path / "b.csv", unknown_label="skip", **asked)
    assert found.report.left_out == 1
    assert "1 rows with unknown labels are left out" in str(found)


def test_missing_column_error_names_the_column(homes, finetune, tmp_path):
    (tmp_path / "pairs.csv").write_text("text,label\na,x\n")
    with pytest.raises(
        ValueError, match="there is no column 'second'; the columns are text, label"
    ):
        finetune("classify-pairs", tmp_path / "pairs.csv", tmp_path / "run")


def test_classifier_accepts_list_of_pairs(homes, finetune, tmp_path):
    rows = [
        "text,label",
        *(f"{homes['sentence'](*each[0])},{each[0][0]}" for each in homes["draw"](60)),
    ]
    (tmp_path / "texts.csv").write_text("\n".join(rows))
    model = finetune("classify", tmp_path / "texts.csv", tmp_path / "run", steps=1)
    (pair,) = model.classify([("mary", "rome")])
    assert pair.second == "rome"
    assert len(model.classify(("mary", "rome"))) == 2  # a tuple of two texts is two texts


def test_class_weights_shares_and_comparison_work_for_pairs(homes, finetune, tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text(homes["pairs"](homes["draw"](80)))
    options = {"steps": 4, "class_weights": "balanced", "best_metric": "macro_f1"}
    first = finetune("classify-pairs", path, tmp_path / "a", **options)
    half = finetune("classify-pairs", path, tmp_path / "b", steps=4, training_share=0.5)
    assert "for comparison" not in (tmp_path / "a/README.md").read_text()
    assert "logistic regression (scikit-learn)" in (tmp_path / "a/README.md").read_text()
    evaluator = first.evaluator(EvaluationOptions())
    prepared = evaluator.prepare(lambda note: None)
    found = evaluator.measure(prepared, lambda note: None)
    compared = compare(found, half.evaluator(EvaluationOptions()), prepared, lambda note: None)
    assert compared.test.texts == found.report.total
    assert "p value" in "\n".join(compared.lines())


def test_messy_pairs_are_cleaned_by_the_options_of_the_table(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("text,second,label\na,b,Yes\na,c,no\nx,y,\na,b,yes\n")
    found = read_text_pairs(str(path), "text", "second", "label", TableOptions())
    assert found.pairs == (("a", "b"), ("a", "c"), ("a", "b"))
    assert len(set(found.table.labels)) == 2
    assert any("1 row repeats the text and label" in note for note in found.table.notes)
    assert not any("different labels" in note for note in found.table.notes)
    with pytest.raises(ValueError, match=r"no column 'other'.*--second-column"):
        read_text_pairs(str(path), "text", "other", "label", TableOptions())
