"""Judging answers that are not known mistakes: one sentence per kind of error."""

import re
import sys

import pytest
import torch

from clearformer.learn.catalogue import find
from clearformer.learn.judge import judge


def nothing(x):
    x @ x.mT


def a_word(x):
    return "scores"


def fails(x):
    return x @ x


def leaves(x):
    sys.exit(3)


def in_place(x):
    x *= 2
    return x @ x.mT / 4


def other_shape(x):
    return (x @ x.mT)[..., 0]


def other_values(x):
    return x @ x.mT + 1


def not_a_number(x):
    return x @ x.mT / 0 * 0


def cut_by_tensor(x):
    return torch.tensor((x @ x.mT).tolist())


def cut_by_detach(x):
    return x.detach() @ x.detach().mT


def half_detached(x):
    return x @ x.detach().mT


def too_few_arguments():
    return torch.zeros(1)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (nothing, r"it returns nothing: write the function, and return its result"),
        (lambda x: ..., r"it returns nothing"),
        (a_word, r"it returns a str, but a tensor is wanted"),
        (fails, r"it fails: RuntimeError: .+ \(line \d+\)"),
        (leaves, r"it fails: SystemExit: 3 \(line \d+\)"),
        (too_few_arguments, r"it fails: TypeError: too_few_arguments\(\) takes 0 positional"),
        (in_place, r"it changes its argument x in place"),
        (other_shape, r"the shape is \(2, 5\), but with x \(2, 5, 3\) it must be \(2, 5, 5\)"),
        (
            other_values,
            r"the values are not: with x \(2, 5, 3\) the result at \[\d, \d, \d\] is -?",
        ),
        (not_a_number, r"the result has NaN with x \(2, 5, 3\)"),
        (cut_by_tensor, r"the values are right, but no gradient reaches x: \.item\(\), \.detach"),
        (cut_by_detach, r"no gradient reaches x"),
        (half_detached, r"the values are right, but the gradient of x is not"),
    ],
)
def test_wrong_answers_get_one_sentence(answer, said):
    verdict = judge(find("1.1"), answer)
    assert not verdict
    assert re.search(said, verdict.message), verdict.message
    assert "\n" not in str(verdict)


def test_reports_failing_backward_pass():
    def weights(raw):
        exponentials = torch.exp(raw - raw.amax(-1, keepdim=True))
        exponentials /= exponentials.sum(-1, keepdim=True)  # exp keeps its result for later
        return exponentials

    verdict = judge(find("1.2"), weights)
    assert verdict.message == (
        "the values are right, but the backward pass fails: a step changes a tensor in place "
        "(+=, /=, x[...] = )"
    )


@pytest.mark.parametrize(
    "answer",
    [
        lambda x: torch.einsum("bie,bje->bij", x, x),
        lambda x: torch.stack(
            [torch.stack([(x * x[:, [i]]).sum(-1)])[0] for i in range(len(x[0]))], 1
        ),
        lambda x: torch.bmm(x.double(), x.double().transpose(1, 2)),
    ],
)
def test_accepts_other_correct_answers(answer):
    verdict = judge(find("1.1"), answer)
    assert verdict, verdict
    assert str(verdict) == "1.1: right: shapes, values and gradients agree in 2 cases"


def test_judges_numbers():
    assert str(judge(find("4.3"), lambda width, heads, head_width: width * heads * head_width * 4))
    assert judge(find("4.3"), lambda width, heads, head_width: 4.0 * width * heads * head_width)
    wrong = judge(find("4.3"), lambda width, heads, head_width: 5)
    assert wrong.message == (
        "the shape is right, the values are not: with width=256, heads=4, head_width=64 the result "
        "is 5.0000, but it must be 262144.0000"
    )
