"""Edits of a trace: the numbers of the same edit in Python, for every kind of model."""

import pytest
import torch
import torch.nn.functional as F

from clearformer.explore.edit_requests import EditRequest, EditResponse
from clearformer.explore.edits import edited
from clearformer.explore.limits import Limits
from clearformer.explore.trace import trace
from clearformer.explore.trace_cache import TraceCache
from clearformer.http_server.errors import Problem
from clearformer.interventions import attention, edit, head, mlp, residual

TEXT = "the cat sat on the mat"
OFF = {"layer": 1, "head": 1}


def asked(loaded, tokens, **body):
    cached = TraceCache().add(loaded, tokens, {})
    answer = edited(cached, EditRequest(**body), Limits())
    EditResponse.model_validate(answer)
    return cached.overview, answer


@pytest.mark.parametrize("family", ["gpt2", "modern", "generator", "xl", "sparse", "bert"])
def test_numbers_are_those_of_python(family, loaded):
    model = loaded(family).model
    part = "self"
    off = {"heads_off": [OFF], "mlps_off": [{"layer": 0}]}
    before, answer = asked(loaded(family), TEXT, **off, i=2)
    with edit(model, zero=[head(1, 1), mlp(0)]):
        after = trace(model, TEXT)
    p, q = (found.logits[2].softmax(-1) for found in (before, after))
    for row in answer["top"]:
        assert row["before"] == pytest.approx(float(p[row["id"]]), abs=1e-6)
        assert row["after"] == pytest.approx(float(q[row["id"]]), abs=1e-6)
    assert answer["moved"] == pytest.approx(float((p - q).abs().sum()) / 2, abs=1e-6)
    assert answer["moved"] > 0
    assert {int(p.argmax()), int(q.argmax())} <= {row["id"] for row in answer["top"]}
    if family == "bert":
        assert answer["loss"] is None
        return
    ids = torch.tensor(before.input.queries(part))
    expected = [F.cross_entropy(found.logits[:-1], ids[1:]) for found in (before, after)]
    assert answer["loss"] == pytest.approx([float(each) for each in expected], abs=1e-5)


def test_of_a_classifier(loaded):
    before, answer = asked(loaded("classifier"), "a good film", heads_off=[OFF])
    assert answer["loss"] is None
    assert {row["text"] for row in answer["top"]} == {"negative", "positive"}
    p = before.logits.softmax(-1)
    assert [row["before"] for row in sorted(answer["top"], key=lambda row: row["id"])] == (
        pytest.approx(p.tolist(), abs=1e-6)
    )
    assert sum(row["after"] for row in answer["top"]) == pytest.approx(1, abs=1e-6)


def test_of_a_translator(loaded):
    model = loaded("original").model
    pair = ([3, 5, 4, 1], [0, 7, 6])
    cross = {"heads_off": [{"layer": 0, "head": 0, "part": "cross"}]}
    before, answer = asked(loaded("original"), pair, **cross)
    with edit(model, zero=head(0, 0, "cross")):
        after = trace(model, pair)
    targets = torch.tensor([7, 6])
    expected = [float(F.cross_entropy(t.logits[:-1], targets)) for t in (before, after)]
    assert answer["loss"] == pytest.approx(expected, abs=1e-5)


def test_a_weight_is_set(loaded):
    cell = {"layer": 1, "head": 0, "i": 3, "j": 1, "weight": 0.8}
    _, answer = asked(loaded("gpt2"), TEXT, weights=[cell], i=3)
    with edit(loaded("gpt2").model, weights={attention(1, 0)[3, 1]: 0.8}):
        q = trace(loaded("gpt2").model, TEXT).logits[3].softmax(-1)
    assert {row["id"]: row["after"] for row in answer["top"]} == pytest.approx(
        {row["id"]: float(q[row["id"]]) for row in answer["top"]}, abs=1e-6
    )


@pytest.mark.parametrize("i", [None, 2])
def test_a_value_of_another_text(i, loaded):
    model = loaded("generator").model
    other = "the dog sat on the mat"
    patch = {"text": other, "layer": 1, "i": i}
    _, answer = asked(loaded("generator"), TEXT, patch=patch)
    place = residual(1) if i is None else residual(1).at(i)
    with edit(model, replace={place: trace(model, other)}):
        q = trace(model, TEXT).logits[-1].softmax(-1)
    assert {row["id"]: row["after"] for row in answer["top"]} == pytest.approx(
        {row["id"]: float(q[row["id"]]) for row in answer["top"]}, abs=1e-6
    )
    assert "".join(token["text"] for token in answer["tokens"]) == other


def test_without_changes_nothing_moves(loaded):
    _, answer = asked(loaded("gpt2"), TEXT)
    assert answer["moved"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"heads_off": [{"layer": 7, "head": 0}]}, "layer is 7, but the model has layers 0 to 1"),
        ({"heads_off": [{"layer": 0, "head": 7}]}, "head is 7, but the layer has heads 0 to 1"),
        ({"weights": [{"layer": 0, "head": 0, "i": 0, "j": 99, "weight": 0.5}]}, "key is 99"),
        ({"patch": {"text": "a", "layer": 0}}, "trace a text of as many tokens"),
        ({"patch": {"text": "a", "layer": 9}}, "layer is 9, but the model has layers 0 to 1"),
        ({"patch": {"text": TEXT, "layer": 0, "head": 1}}, "resid_pre has no heads"),
        ({"i": 99}, "i is 99, but there are tokens"),
    ],
)
def test_messages(body, sentence, loaded):
    with pytest.raises(Problem, match=sentence):
        asked(loaded("gpt2"), TEXT, **body)
