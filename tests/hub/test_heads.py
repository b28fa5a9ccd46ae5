"""Heads of imported checkpoints: same outputs as the reference, in and out."""

from dataclasses import replace

import pytest
import torch

from clearformer.builder import build
from clearformer.config import (
    AnswerSpan,
    Classifier,
    Features,
    GenerationDefaults,
    MultiLabelClassifier,
    MultipleChoice,
    NextSentence,
    Regressor,
    TokenClassifier,
)
from clearformer.families import bert
from clearformer.hub.export_family import choose_family
from clearformer.hub.exporting import to_huggingface
from clearformer.hub.heads import class_names, write_classes
from clearformer.hub.hf_config import HFConfig
from clearformer.hub.importing import import_checkpoint
from clearformer.text.plain import Bytes

ATTENTION_MASK = torch.arange(9) < torch.tensor([[9], [4], [1]])  # right-padded
SEGMENTS = (torch.arange(9) > 3).long().expand(3, 9)
NAMES = ("bad", "fair", "good")
LAST = Classifier(classes=3, pool="last", names=NAMES, bias=False)
HEADS = {
    "bert-tokens": TokenClassifier(classes=3, names=("O", "B-PER", "I-PER")),
    "bert-answers": AnswerSpan(),
    "bert-next": NextSentence(),
    "bert-choices": MultipleChoice(),
    "gpt2-classes": LAST,
    "gpt2-tokens": TokenClassifier(classes=3, names=NAMES),
    "gpt2-answers": AnswerSpan(),
    "llama-classes": LAST,
    "llama-tokens": TokenClassifier(classes=3, names=NAMES),
    "llama-tokens-unbiased": TokenClassifier(classes=3, names=NAMES, bias=False),
    "llama-answers": AnswerSpan(),
    "llama-body": Features(pool="last"),
    "mistral-classes": LAST,
    "mistral-answers": AnswerSpan(),
    "qwen2-classes": LAST,
    "qwen3-classes": LAST,
}
# Their question answering classes name the body differently.
ONLY_IN = {"llama-answers", "mistral-answers"}


def near(given, expected):
    torch.testing.assert_close(given, expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def numbers(theirs, tokens, attention_mask, segments):
    """The output of their model, in the shape of ours."""
    name = type(theirs).__name__
    more = {"attention_mask": attention_mask.long()} if attention_mask is not None else {}
    if name.startswith("Bert"):
        more["token_type_ids"] = segments
    if name == "BertForMultipleChoice":  # a row for each answer to one question
        more = {key: value[None] for key, value in more.items()}
        return theirs(tokens[None], **more).logits.T
    if name.endswith("ForSequenceClassification"):
        # They detect padding by its id, so one text at a time.
        rows = [
            row if attention_mask is None else row[own]
            for row, own in rows_of(tokens, attention_mask)
        ]
        return torch.cat([theirs(row[None]).logits for row in rows])
    found = theirs(tokens, **more)
    if name.endswith("Model"):
        ends = torch.full((3,), 8) if attention_mask is None else attention_mask.sum(1) - 1
        return found.last_hidden_state[torch.arange(3), ends]
    if name.endswith("ForQuestionAnswering"):
        return torch.stack((found.start_logits, found.end_logits), dim=-1)
    return found.logits


def export(model, config, out):
    return to_huggingface(model, config, GenerationDefaults(), Bytes(), out)


def rows_of(tokens, attention_mask):
    return zip(
        tokens, attention_mask if attention_mask is not None else [None] * len(tokens), strict=True
    )


@pytest.mark.parametrize("name", HEADS)
def test_head_matches_transformers(folder, tokens, name):
    path, theirs = folder(name)
    found = import_checkpoint(path)
    assert found.config.head == HEADS[name]
    ours = found.model()
    segments = SEGMENTS if found.config.segments else None
    for attention_mask in (None, ATTENTION_MASK):
        expected = numbers(theirs, tokens, attention_mask, SEGMENTS)
        with torch.no_grad():
            given = ours(tokens, attention_mask, segments)
        real = ATTENTION_MASK if attention_mask is not None and given.dim() == 3 else slice(None)
        near(given[real], expected[real])


@pytest.mark.parametrize("name", sorted(HEADS.keys() - ONLY_IN))
def test_exported_head_matches_original(transformers, folder, tokens, tmp_path, name):
    path, theirs = folder(name)
    found = import_checkpoint(path)
    done = to_huggingface(
        found.model(), found.config, found.generation, found.tokenizer, tmp_path / "out"
    )
    assert done.form == type(theirs).__name__
    again, about = type(theirs).from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(about.get(key) for key in ("missing_keys", "unexpected_keys", "error_msgs"))
    assert again.config.id2label == theirs.config.id2label
    given, expected = (
        numbers(each.eval(), tokens, ATTENTION_MASK, SEGMENTS) for each in (again, theirs)
    )
    near(given, expected)


@pytest.mark.parametrize("name", sorted(ONLY_IN))
def test_rejects_export_of_head_without_counterpart(folder, tmp_path, name):
    path, _ = folder(name)
    found = import_checkpoint(path)
    with pytest.raises(ValueError, match=r"has no counterpart among .*: use --to safetensors"):
        to_huggingface(
            found.model(), found.config, found.generation, found.tokenizer, tmp_path / "out"
        )


def test_rejects_export_of_classifier_with_other_pooling(folder, tmp_path, scrambled):
    from dataclasses import replace

    from clearformer.builder import build

    path, _ = folder("gpt2-classes")
    found = import_checkpoint(path)
    config = replace(found.config, head=Classifier(classes=3, pool="mean", names=NAMES))
    with pytest.raises(ValueError, match=r"its head is Classifier\(classes=3, pool=last"):
        to_huggingface(build(config), config, found.generation, found.tokenizer, tmp_path / "out")


def test_classify_matches_transformers_probabilities(folder, tmp_path, texts):
    """`classify` on the imported run against the reference, one text at a time."""
    from clearformer import data
    from clearformer.hub.write_run import write_run
    from clearformer.runs.load import open_run
    from clearformer.tasks.classification import predict

    for name in ("gpt2-classes", "llama-classes", "qwen3-classes"):
        path, theirs = folder(name, place=name)
        write_run(import_checkpoint(path), tmp_path / f"{name}-run")
        opened = open_run(tmp_path / f"{name}-run")
        several = tuple(text[:20] for text in texts[:5])
        table = data.Table("here", several, None)
        rows = data.encode_rows(table, opened.tokenizer, NAMES)
        given = predict(opened.model, rows, opened.config)
        ids = [torch.from_numpy(opened.tokenizer.encode(text)).long()[None] for text in several]
        assert len({each.shape for each in ids}) > 1, "rows of several lengths are padded"
        with torch.no_grad():
            near(given, torch.cat([theirs(each).logits.softmax(-1) for each in ids]))


def test_ignores_bias_setting_of_other_family(folder, edit):
    """GPT-2's class does not read it; Llama's does."""
    path, _ = folder("gpt2-tokens")
    edit(path / "config.json", token_classification_bias=False)
    found = import_checkpoint(path)
    assert found.config.head.bias
    assert found.notes == (
        "ignored, a setting that this kind of model does not have: token_classification_bias",
    )


def test_class_names_from_id2label_num_labels_or_default():
    assert class_names(HFConfig({}, "here")) == ("LABEL_0", "LABEL_1")
    assert class_names(HFConfig({"num_labels": 3}, "here"))[2] == "LABEL_2"
    assert class_names(HFConfig({"id2label": {"0": "a", "1": "b"}}, "here")) == ("a", "b")
    assert write_classes(Features()) == {}
    assert write_classes(Classifier(names=("a", "b"))) == {
        "id2label": {"0": "a", "1": "b"},
        "label2id": {"a": 0, "b": 1},
    }


@pytest.mark.parametrize("kind", ["gpt2-classes", "llama-classes", "bert-classes"])
def test_rejects_unsupported_problem_types_and_labels(folder, edit, kind):
    path, _ = folder(kind)
    edit(path / "config.json", problem_type="ranking")
    with pytest.raises(ValueError, match=r"problem_type is 'ranking', but clearformer computes"):
        import_checkpoint(path)
    edit(path / "config.json", problem_type="single_label_classification", id2label={"0": "x"})
    with pytest.raises(ValueError, match=r"id2label is \['x'\], but a classifier has two classes"):
        import_checkpoint(path)
    edit(path / "config.json", problem_type="regression", id2label={"0": "x", "1": "y"})
    with pytest.raises(ValueError, match="num_labels is 2, but a regression model has one output"):
        import_checkpoint(path)


@pytest.mark.parametrize("kind", ["gpt2-classes", "llama-classes", "bert-classes"])
def test_several_labels_come_in_and_go_out(folder, edit, kind, tmp_path):
    path, theirs = folder(kind)
    edit(path / "config.json", problem_type="multi_label_classification")
    found = import_checkpoint(path)
    assert isinstance(found.config.head, MultiLabelClassifier)
    tokens = torch.randint(1, 20, (2, 6))
    with torch.no_grad():
        near(found.model().eval()(tokens), torch.cat([theirs(row[None]).logits for row in tokens]))
    family, _, _, written = choose_family(found.config, dict(found.model().named_parameters()))
    assert written["problem_type"] == "multi_label_classification"
    names = dict.fromkeys(theirs.state_dict())
    assert family.read_config(HFConfig(written, "here"), names).head == found.config.head


@pytest.mark.parametrize("problem", ["regression", None])
def test_one_output_is_a_number_in_and_out(tmp_path, problem):
    transformers = pytest.importorskip("transformers")
    settings = transformers.BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=12, num_labels=1, problem_type=problem,
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = transformers.BertForSequenceClassification(settings).eval()
    theirs.save_pretrained(tmp_path / "in")
    found = import_checkpoint(tmp_path / "in")
    assert found.config.head == Regressor(pool="pooler")
    tokens = torch.randint(1, 30, (3, 7))
    with torch.no_grad():
        near(found.model().eval()(tokens), theirs(tokens).logits)


def test_an_exported_regressor_gives_numbers_in_their_own_unit(tmp_path):
    transformers = pytest.importorskip("transformers")
    scaled = Regressor(pool="pooler", mean=1000.0, std=25.0)
    config = replace(
        bert("tiny"), vocabulary=256, length=12, layers=1, width=16, heads=2, hidden=32, head=scaled
    )
    model = build(config).eval()
    export(model, config, tmp_path / "out")
    kind = transformers.AutoModelForSequenceClassification
    theirs = kind.from_pretrained(tmp_path / "out").eval()
    assert (theirs.config.num_labels, theirs.config.problem_type) == (1, "regression")
    tokens = torch.randint(1, 30, (3, 7))
    with torch.no_grad():
        torch.testing.assert_close(theirs(tokens).logits, model(tokens), rtol=1e-5, atol=1e-3)
    without = replace(config, head=replace(scaled, bias=False))
    with pytest.raises(ValueError, match="adds 1000 to its outputs, but its head has no bias"):
        export(build(without), without, tmp_path / "other")


def test_ignores_labels_of_model_without_classifier(folder, edit):
    path, _ = folder("llama")
    edit(
        path / "config.json",
        id2label={"0": "x"},
        label2id={"x": 0},
        problem_type="regression",
    )
    assert import_checkpoint(path).notes == ()
