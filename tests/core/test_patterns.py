"""Attention patterns: their rules, their composition, and per-head or per-sequence patterns."""

import itertools
import re
import subprocess
import sys

import pytest
import torch

from clearformer.core.patterns import Causal, Fixed, Full, Local, Pattern, Strided
from clearformer.extensions.patterns import Each, Graph, PerHead
from clearformer.kernels.guides import count_pairs

RULES = {
    "full": (Full(), lambda i, j: True),
    "causal": (Causal(), lambda i, j: j <= i),
    "itself": (Local(1), lambda i, j: i == j),
    "local": (Local(3), lambda i, j: abs(i - j) <= 2),
    "strided": (Strided(3), lambda i, j: (i - j) in (-9, -6, -3, 0, 3, 6, 9)),
    "fixed": (Fixed(4, 1), lambda i, j: i // 4 == j // 4 or j in (3, 7, 11)),
    "fixed, two summaries": (Fixed(4, 2), lambda i, j: i // 4 == j // 4 or j % 4 in (2, 3)),
    "graph": (Graph(((0, 2), (2, 0), (3, 1)), 5), lambda i, j: (i, j) in {(0, 2), (2, 0), (3, 1)}),
    "no edges": (Graph((), 3), lambda i, j: False),
    "both": (Causal() & Local(2), lambda i, j: j in (i, i - 1)),
    "either": (Local(2) | Strided(4), lambda i, j: abs(i - j) in (0, 1, 4, 8)),
    "nested": (Causal() & (Local(2) | Strided(4)), lambda i, j: i - j in (0, 1, 4, 8)),
}


@pytest.mark.parametrize("name", RULES)
def test_table_matches_rule(name):
    pattern, rule = RULES[name]
    table = pattern.table(11, 11)
    assert table.dtype == torch.bool
    assert table.tolist() == [[rule(i, j) for j in range(11)] for i in range(11)]


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("queries", [1, 4, 11])
def test_queries_are_the_last_positions(name, queries):
    pattern, _ = RULES[name]
    assert torch.equal(pattern.table(queries, 11), pattern.table(11, 11)[-queries:])


@pytest.mark.parametrize("name", RULES)
def test_count_pairs_equals_table_sum(name):
    pattern, _ = RULES[name]
    assert count_pairs(pattern, 11) == int(pattern.table(11, 11).sum())


def test_count_pairs_of_long_sequence():
    assert count_pairs(Causal(), 6_000) == 6_000 * 6_001 // 2


@pytest.mark.parametrize("stride", [8, 16, 32])
def test_sparse_patterns_are_subquadratic(stride):
    length = stride**2
    strided = Causal() & (Local(stride) | Strided(stride))
    fixed = Causal() & Fixed(stride, 1)
    assert count_pairs(strided, length) <= 2 * length**1.5
    assert count_pairs(fixed, length) <= 2 * length**1.5
    assert count_pairs(Causal(), length) > stride / 4 * count_pairs(strided, length)


def test_draw_shows_a_row_for_each_query():
    assert Causal().draw(3) == "■ · ·\n■ ■ ·\n■ ■ ■"
    assert Fixed(2, 1).draw(4) == "■ ■ · ■\n■ ■ · ■\n· ■ ■ ■\n· ■ ■ ■"


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize(("length", "cells"), [(12, 3), (10, 4), (7, 7), (9, 1)])
def test_density_is_mean_of_each_cell(name, length, cells):
    pattern, _ = RULES[name]
    density = pattern.density(length, cells)
    bounds = [round(length * cell / cells) for cell in range(cells + 1)]
    table = pattern.table(length, length).float()
    for row, column in itertools.product(range(cells), range(cells)):
        cell = table[bounds[row] : bounds[row + 1], bounds[column] : bounds[column + 1]]
        torch.testing.assert_close(density[row, column], cell.mean())


def test_draw_downsamples_long_sequences():
    assert Causal().draw(8, cells=2) == "▓ ·\n■ ▓"  # 10 of 16 in the diagonal cells
    # A single edge among 64 x 64 does not vanish.
    assert Graph(((63, 0),), 64).draw(64, cells=4).splitlines()[3] == "░ · · ·"
    for name, (pattern, _) in RULES.items():
        lines = pattern.draw(100).splitlines()
        assert len(lines) == 32, name


def test_patterns_compare_and_hash_by_value():
    assert Causal() & Local(3) == Causal() & Local(3)
    assert Causal() & Local(3) != Causal() | Local(3)
    assert len({Fixed(4, 1), Fixed(4, 1), Fixed(4, 2)}) == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Local(0), "Local: window is 0, but it must be at least 1"),
        (lambda: Strided(-2), "Strided: stride is -2, but it must be at least 1"),
        (lambda: Fixed(0, 1), "Fixed: stride is 0, but it must be at least 1"),
        (
            lambda: Fixed(4, 0),
            "Fixed: summary is 0, but it must be at least 1",
        ),
        (
            lambda: Fixed(4, 5),
            "Fixed: summary is 5, but it must be at most the stride, 4",
        ),
        (lambda: Graph((), 0), "Graph: nodes is 0, but it must be at least 1"),
        (
            lambda: Graph(((0, 1), (1, 3)), 3),
            "Graph: edge (1, 3) leaves the nodes 0 to 2; number the nodes from 0 or raise nodes",
        ),
        (
            lambda: Graph(((-1, 0),), 3),
            "Graph: edge (-1, 0) leaves the nodes 0 to 2; number the nodes from 0 or raise nodes",
        ),
        (
            lambda: Graph(((0, 1, 2),), 3),
            "Graph: edge (0, 1, 2) has 3 nodes, but an edge is a pair: write (query, key)",
        ),
        (lambda: Local(1.5), "Local: window is 1.5, but it must be a whole number"),
        (lambda: PerHead(()), "PerHead: it has no patterns, but it needs at least 1"),
        (
            lambda: Each((Causal(),) * 3).by_row(2),
            "Each: there are 3 patterns for 2 sequences: there must be one for each",
        ),
    ],
)
def test_rejects_invalid_arguments(make, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make()


def test_pattern_base_class_is_abstract():
    with pytest.raises(NotImplementedError):
        Pattern().table(2, 2)


def test_difference_removes_pairs():
    assert (Full() - Causal()).draw(3) == "· ■ ■\n· · ■\n· · ·"


@pytest.mark.parametrize(
    ("pattern", "causal"),
    [
        (Causal(), True),
        (Local(3) & Causal(), True),
        (Causal() | Full(), False),
        (PerHead((Causal(), Causal() & Strided(2))), True),
        (PerHead((Causal(), Full())), False),
        (Local(3), False),
        (Causal() - Local(1), False),
    ],
    ids=str,
)
def test_is_causal_implies_no_later_keys(pattern, causal):
    assert pattern.is_causal == causal
    if causal:
        assert not (pattern.table(9, 9) & ~Causal().table(9, 9)).any()


def test_accepts_positional_and_keyword_arguments():
    assert Local(3) == Local(window=3)
    assert Graph(((0, 1),), 2) == Graph(edges=((0, 1),), nodes=2)


def test_patterns_do_not_import_torch():
    script = (
        "import sys; from clearformer.core.patterns import Causal, Fixed;"
        "from clearformer.extensions.patterns import Graph;"
        "Causal() & Fixed(4, 1) | Graph(((0, 1),), 2); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
