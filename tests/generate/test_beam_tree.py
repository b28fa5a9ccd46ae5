"""The tree of a beam search: by hand on a table of transitions, and nothing but the search."""

import math
from itertools import pairwise

import torch

from clearformer.generate.beam import Beam, search
from clearformer.generate.beam_tree import search_tree

# From each token to the next: 0 ends a text.
TABLE = torch.tensor(
    [[1.0, 0.0, 0.0, 0.0], [0.1, 0.2, 0.3, 0.4], [0.6, 0.1, 0.2, 0.1], [0.3, 0.3, 0.3, 0.1]]
).clamp(min=1e-6).log()  # fmt: skip
FIRST = torch.tensor([[0.05, 0.5, 0.3, 0.15]]).log()


class Transitions:
    """Beams of a model that sees the last token alone: no cache, so nothing is copied."""

    device = torch.device("cpu")
    sentences = 1

    def first(self):
        return FIRST.clone()

    def step(self, tokens):
        return TABLE[tokens]

    def widen(self, beams):
        pass

    def copy(self, sources, targets):
        pass

    def select(self, sentences):
        pass


def tree_of(beam, length=4):
    return search_tree(Transitions(), beam, eos_ids=(0,), max_tokens=length)


def test_first_step_has_the_most_likely_tokens():
    tree = tree_of(Beam(width=2))
    first = [node for node in tree.nodes if node.length == 1]
    assert [node.token for node in first] == [1, 2, 3, 0]
    assert [node.fate for node in first] == ["kept", "kept", "pruned", "pruned"]
    assert math.isclose(first[1].total, math.log(0.3), rel_tol=1e-5)


def test_every_total_is_the_sum_of_its_path_and_ends_are_scored_by_length():
    tree = tree_of(Beam(width=3, length_penalty=0.5))
    for node in tree.nodes[1:]:
        path = tree.tokens(node)
        steps = [FIRST[0, path[0]], *(TABLE[a, b] for a, b in pairwise(path))]
        total = float(sum(steps))
        assert math.isclose(node.total, total, rel_tol=1e-4)
        assert math.isclose(node.log_probability, float(steps[-1]), rel_tol=1e-3)
        assert len(path) == node.length
        if node.score is not None:
            assert node.fate in ("finished", "outscored")
            assert math.isclose(node.score, total / node.length**0.5, rel_tol=1e-4)


def test_hypotheses_that_no_model_predicted_are_left_out():
    """A text of at most two tokens has 13 endings here, and the search fills up a wider beam."""
    tree = tree_of(Beam(width=16, length_penalty=3.0), length=2)
    assert len(tree.hypotheses) == len({each.tokens for each in tree.hypotheses}) == 13
    assert all(each.score > -100 for each in tree.hypotheses)
    assert sum(node.rank is not None for node in tree.nodes) == 13


def test_hypotheses_are_those_of_the_search():
    for width in (2, 3, 4):
        beam = Beam(width=width, best=width)
        tree = tree_of(Beam(width=width))
        (found,) = search(Transitions(), beam, eos_ids=(0,), max_tokens=4)
        assert tree.hypotheses == [each for each in found if each.score > -1e8]
        ranked = sorted((n for n in tree.nodes if n.rank is not None), key=lambda n: n.rank)
        assert [node.rank for node in ranked] == list(range(len(tree.hypotheses)))
        for node, each in zip(ranked, tree.hypotheses, strict=True):
            tokens = tree.tokens(node)
            assert (tokens[:-1] if each.ended else tokens) == each.tokens
            assert math.isclose(node.score, each.score, rel_tol=1e-6)
