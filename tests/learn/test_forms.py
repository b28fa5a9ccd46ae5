"""Forms of an answer: what the judge says of a module that is not one, or is not callable."""

import pytest
import torch
from torch import nn

from clearformer.learn.catalogue import find
from clearformer.learn.generating import CausalSelfAttention
from clearformer.learn.judge import judge


class Empty(nn.Module): ...


class NoLayers(nn.Module):
    def __init__(self, k, heads):
        super().__init__()

    def forward(self, x):
        return x


class OtherNames(nn.Module):
    def __init__(self, k, heads):
        super().__init__()
        self.project = nn.Linear(k, k)

    def forward(self, x):
        return self.project(x)


class NoModule:
    def __init__(self, k, heads):
        self.k = k


class Fails(CausalSelfAttention):
    def forward(self, x):
        return x @ x


class Silent(CausalSelfAttention):
    def forward(self, x):
        super().forward(x)


class Dropping(CausalSelfAttention):
    """Right while weights are tried in eval mode with dropout 0, and wrong in use."""

    def forward(self, x):
        return super().forward(x) + 1e-7 * torch.rand(())


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Empty, "it returns nothing: the class has neither __init__ nor forward yet"),
        (NoLayers, "its parameters are none, but they must be toqueries.weight (12, 12)"),
        (OtherNames, "its parameters are project.weight (12, 12), project.bias (12,), but"),
        (NoModule, "it makes a NoModule, but a module is wanted: derive from nn.Module"),
        (Fails, "it fails: RuntimeError"),
        (Silent, "it returns nothing"),
        (Dropping, "the values are right, but verify finds eval-nondeterministic"),
    ],
)
def test_module_that_cannot_be_right(answer, said):
    verdict = judge(find("8.2"), answer)
    assert not verdict
    assert said in verdict.message


def test_error_names_the_line_of_the_answer():
    assert "(line " in judge(find("8.2"), Fails).message


def test_judging_leaves_random_numbers_alone():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    assert judge(find("8.2"), CausalSelfAttention)
    assert expected.equal(torch.rand(2))


def test_signature_and_solution_are_a_class():
    exercise = find("8.2")
    assert exercise.signature == "class CausalSelfAttention(nn.Module):"
    assert exercise.solution.startswith("class CausalSelfAttention(nn.Module):")
    assert exercise.parameters[:2] == ["x", "toqueries.weight"]
