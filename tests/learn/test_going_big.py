"""Chapter 15: wrong answers as people write them, and the solutions beside torch."""

import math

import pytest
import torch

from clearformer.learn import going_big as solutions
from clearformer.learn.catalogue import find
from clearformer.learn.judge import judge


def counted(*sizes, without=None):
    """Bytes by a factor for each argument, the first one squared; one argument may be left out."""
    names = ("tokens", "batch", "heads", "layers", "tables", "bytes_each")
    given = dict(zip(names, sizes, strict=True))
    return math.prod([given.pop("tokens") ** 2, *(given | {without: 1}).values()])


def linear(tokens, *others):
    return counted(tokens, *others) // tokens


def backward_through(x, sections, output_gradient, inputs):
    for section, at in zip(sections, inputs, strict=True):
        at = at.clone().requires_grad_(True)
        with torch.enable_grad():
            y = section(at)
        y.backward(output_gradient)
        output_gradient = at.grad
    return output_gradient


def kept(x, sections):
    with torch.no_grad():
        found = [x]
        for section in sections:
            found.append(section(found[-1]))
    return found[:-1]


def unchained(x, sections, output_gradient):
    return backward_through(x, sections[:1], output_gradient, [x])


def forward_order(x, sections, output_gradient):
    return backward_through(x, sections, output_gradient, kept(x, sections))


def always_at_x(x, sections, output_gradient):
    return backward_through(x, sections[::-1], output_gradient, [x] * len(sections))


def last_only(x, sections, output_gradient):
    return backward_through(x, sections[-1:], output_gradient, kept(x, sections)[-1:])


def plain(x, sections, output_gradient):
    x = x.clone().requires_grad_(True)
    y = x
    for section in sections:
        y = section(y)
    y.backward(output_gradient)
    return x.grad


@pytest.mark.parametrize(
    ("number", "answer", "said"),
    [
        ("15.1", linear, "with their square"),
        ("15.1", lambda *sizes: counted(*sizes, without="heads"), "the heads are missing"),
        (
            "15.1",
            lambda *sizes: counted(*sizes, without="bytes_each"),
            "these are numbers, not bytes",
        ),
        ("15.1", lambda *sizes: 8 * counted(*sizes), "these are bits"),
        ("15.1", lambda *sizes: counted(*sizes, without="batch"), "the batch is missing"),
        ("15.2", lambda means, counts: means.sum() / len(means), "the mean of means"),
        ("15.2", lambda means, counts: torch.sum(means), "the means are summed"),
        ("15.2", lambda means, counts: means @ counts.float(), "this is the sum over all tokens"),
        ("15.2", lambda means, counts: (means * counts).mean(), "divided by the number of parts"),
        ("15.3", unchained, "the sections are not chained"),
        ("15.3", forward_order, "in forward order"),
        ("15.3", always_at_x, "every section is computed again at x"),
        ("15.3", last_only, "go on to the first"),
        ("15.3", plain, "still holds the graph of the sections before"),
    ],
)
def test_a_wrong_answer_gets_its_own_message(number, answer, said):
    verdict = judge(find(number), answer)
    assert not verdict
    assert said in verdict.message


def test_the_solution_is_autograd():
    x = torch.randn(3, 4, requires_grad=True)
    gradient = torch.randn(3, 4)
    sections = [torch.tanh, torch.square, torch.sin]
    (expected,) = torch.autograd.grad(torch.tanh(x).square().sin(), x, gradient)
    found = solutions.checkpointed(x.detach(), sections, gradient)
    torch.testing.assert_close(found, expected)


def test_the_posts_arithmetic():
    assert solutions.table_bytes(1000, 16, 1, 1, 1, 4) == 64_000_000
