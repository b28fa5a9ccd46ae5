"""Exercises of chapter 15: memory, accumulation and checkpointing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from clearformer.learn.exercise import Case, Exercise, Mistake, draw

Section = Callable[[Tensor], Tensor]


def table_bytes(
    tokens: int, batch: int, heads: int, layers: int, tables: int, bytes_each: int
) -> int:
    return bytes_each * tokens**2 * batch * heads * layers * tables


def accumulated(means: Tensor, counts: Tensor) -> Tensor:
    return (means * counts).sum() / counts.sum()


def checkpointed(x: Tensor, sections: Sequence[Section], output_gradient: Tensor) -> Tensor:
    inputs = []
    with torch.no_grad():
        for section in sections:
            inputs.append(x)
            x = section(x)
    gradient = output_gradient
    for section, kept in zip(reversed(sections), reversed(inputs), strict=True):
        leaf = kept.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(section(leaf), leaf, gradient)
    return gradient


def _models() -> list[Case]:
    return [(1000, 16, 4, 12, 4, 4), (512, 8, 8, 6, 1, 2), (300, 3, 5, 7, 2, 4)]


def _parts() -> list[Case]:
    return [
        (torch.tensor([2.0, 3.0, 5.0]), torch.tensor([10, 30, 60])),
        (torch.tensor([1.0, 0.5]), torch.tensor([7, 1])),
    ]


def _alone(section: Section) -> Section:
    """The section, which refuses an input that keeps the graph of another section alive."""

    def run(x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and x.grad_fn is not None:
            raise RuntimeError(
                "a section was given a tensor that still holds the graph of the sections before, "
                "so that everything is kept: run them under torch.no_grad() and detach"
            )
        return section(x)

    return run


def _networks() -> list[Case]:
    matrix = draw(4, 4, seed=1)
    sections = [lambda x: torch.tanh(x @ matrix), torch.square, lambda x: x.cumsum(dim=-1)]
    return [(draw(3, 4), [_alone(each) for each in sections], draw(3, 4, seed=2))]


def _at(section: Section, x: Tensor, gradient: Tensor) -> Tensor:
    leaf = x.detach().requires_grad_()
    return torch.autograd.grad(section(leaf), leaf, gradient)[0]


def _inputs(x: Tensor, sections: Iterable[Section]) -> list[Tensor]:
    found = []
    with torch.no_grad():
        for section in sections:
            found.append(x)
            x = section(x)
    return found


def _in_order(x: Tensor, sections: Sequence[Section], gradient: Tensor) -> Tensor:
    for section, kept in zip(sections, _inputs(x, sections), strict=True):
        gradient = _at(section, kept, gradient)
    return gradient


def _at_the_input(x: Tensor, sections: Sequence[Section], gradient: Tensor) -> Tensor:
    for section in reversed(sections):
        gradient = _at(section, x, gradient)
    return gradient


EXERCISES = (
    Exercise(
        number="15.1",
        title="The memory of the scores",
        task="Return the bytes of all tables of scores (eq. 28): each is tokens x tokens, for each "
        "sequence of the batch, each head and each layer, `tables` times, with bytes_each for a "
        "number.",
        answer=table_bytes,
        cases=_models,
        hints=(
            "One table of one head and one sequence: tokens² numbers.",
            "Everything else multiplies.",
            "The post: 1000 tokens, 4 bytes, a batch of 16: 64 MB for one head and one table.",
        ),
        mistakes=(
            Mistake(
                lambda tokens, batch, heads, layers, tables, bytes_each: (
                    bytes_each * tokens * batch * heads * layers * tables
                ),
                "it grows with tokens: every token scores every other, so with their square",
            ),
            Mistake(
                lambda tokens, batch, heads, layers, tables, bytes_each: (
                    bytes_each * tokens**2 * batch * layers * tables
                ),
                "the heads are missing: narrow heads share the width, but each has a table of its "
                "own",
            ),
            Mistake(
                lambda tokens, batch, heads, layers, tables, bytes_each: (
                    tokens**2 * batch * heads * layers * tables
                ),
                "these are numbers, not bytes: multiply by bytes_each",
            ),
            Mistake(
                lambda tokens, batch, heads, layers, tables, bytes_each: (
                    8 * bytes_each * tokens**2 * batch * heads * layers * tables
                ),
                "these are bits: a byte is 8 of them",
            ),
            Mistake(
                lambda tokens, batch, heads, layers, tables, bytes_each: (
                    bytes_each * tokens**2 * heads * layers * tables
                ),
                "the batch is missing: each sequence has its own tables",
            ),
        ),
    ),
    Exercise(
        number="15.2",
        title="Accumulation with unequal parts",
        task="A batch was computed in parts. means (P,) are the mean losses of the parts' tokens, "
        "counts (P,) how many tokens they have. Return the mean loss over all tokens of the batch.",
        answer=accumulated,
        cases=_parts,
        hints=(
            "A mean times its count is a sum, and sums can be added.",
            "Divide once, at the end, by the number of all tokens.",
            "(means * counts).sum() / counts.sum()",
        ),
        mistakes=(
            Mistake(
                lambda means, counts: means.mean(),
                "the mean of means: a token of a short part counts more than one of a long part. "
                "Weigh the parts by their tokens",
            ),
            Mistake(
                lambda means, counts: means.sum(),
                "the means are summed: the loss, and with it the step, grows with the number of "
                "parts",
            ),
            Mistake(
                lambda means, counts: (means * counts).sum(),
                "this is the sum over all tokens: divide by their number",
            ),
            Mistake(
                lambda means, counts: (means * counts).sum() / len(counts),
                "divided by the number of parts: divide by the number of tokens",
            ),
        ),
    ),
    Exercise(
        number="15.3",
        title="Checkpointing by hand",
        task="sections are functions of a tensor that are applied one after the other, starting "
        "from x. output_gradient is the gradient of the last one's output. Return the gradient of "
        "x. Keep only the input of each section, without a graph, and compute a section again "
        "when its gradient is due.",
        answer=checkpointed,
        cases=_networks,
        hints=(
            "First pass, under torch.no_grad(): note each section's input.",
            "Second pass, last section first: a leaf from the noted input, the section again.",
            "torch.autograd.grad(section(leaf), leaf, gradient) gives the gradient for the section "
            "before.",
        ),
        mistakes=(
            Mistake(
                lambda x, sections, gradient: _at(sections[0], x, gradient),
                "the sections are not chained: the gradient that enters a section is what the one "
                "after it gives, not output_gradient",
            ),
            Mistake(
                _in_order,
                "the gradient goes through the sections in forward order: the last one comes first",
            ),
            Mistake(
                _at_the_input,
                "every section is computed again at x: each needs its own input",
            ),
            Mistake(
                lambda x, sections, gradient: _at(sections[-1], _inputs(x, sections)[-1], gradient),
                "this is the gradient of the last section's input: go on to the first",
            ),
        ),
    ),
)
