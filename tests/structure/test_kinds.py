"""Few places ask for the class of a head, a model or a cache."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src/clearformer"
LIMIT = 15
ALLOWED = ("tasks", "hub", "builder.py")  # they know the classes: registry, tables, builder
KINDS = {
    "NextToken", "MaskedToken", "Pretraining", "Features", "Classifier", "TokenClassifier",
    "AnswerSpan", "NextSentence", "MultipleChoice", "UntrainedHead", "Head", "AnyHead",
    "Transformer", "Seq2Seq", "ModelConfig", "Seq2SeqConfig", "HiddenMemory", "KVCache", "KVMemory",
}  # fmt: skip


def named(node):
    found = (each for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute))
    return {each.id if isinstance(each, ast.Name) else each.attr for each in found}


def calls(node, *names):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def questions(tree):
    """Lines that ask for one of the classes: isinstance, `case Kind()`, type(x) is Kind."""
    for node in ast.walk(tree):
        if calls(node, "isinstance", "issubclass"):
            asked = node.args[1]
        elif isinstance(node, ast.MatchClass):
            asked = node.cls
        elif isinstance(node, ast.Compare) and any(
            calls(each, "type") for each in (node.left, *node.comparators)
        ):
            asked = node
        else:
            continue
        if named(asked) & KINDS:
            yield node.lineno


def test_class_checks_are_rare():
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] not in ALLOWED
        for line in questions(ast.parse(path.read_text()))
    ]
    assert len(found) <= LIMIT, "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(head, NextToken)",
        "isinstance(head, heads.MaskedToken | heads.Pretraining)",
        "assert isinstance(model, (Transformer, Seq2Seq))",
        "type(past) is KVCache",
        "match config:\n    case c.Seq2SeqConfig():\n        pass",
    ],
)
def test_every_form_of_class_check_is_counted(code):
    assert list(questions(ast.parse(code)))


def test_checks_of_other_classes_are_not_counted():
    assert not list(questions(ast.parse("isinstance(x, str)\ntype(x) is int\nfoo(Classifier)")))
