"""Every bug of the catalogue is found by its name in a model that has it."""

import sys
from pathlib import Path

import pytest
import torch

from clearformer.verification.catalogue import CHECKS, chosen_names
from clearformer.verification.check import verify
from clearformer.verification.entries import ENTRIES

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from verify_models.mutants import MUTANTS
from verify_models.sources import SOURCES

# Reported as information, or not applicable to these models; their checks have their own tests.
UNPLANTED = {"output-projection-missing", "gelu-variant", "cross-attention-recomputed"}
QUICK = [name for name in SOURCES if not name.startswith(("hf_", "x_"))]


def first_of_each_bug():
    found = {}
    for mutant in MUTANTS:
        if mutant.source in QUICK:
            found.setdefault(mutant.bug, mutant)
    return found


def test_every_bug_is_planted_somewhere():
    assert len(ENTRIES) >= 30
    assert len(MUTANTS) >= 100
    assert {mutant.bug for mutant in MUTANTS} == set(ENTRIES) - UNPLANTED


def test_every_bug_belongs_to_a_check():
    assert {name for check in CHECKS for name in check.names} == set(ENTRIES)


@pytest.mark.parametrize("bug", sorted(first_of_each_bug()))
def test_planted_bug_is_found(bug):
    torch.manual_seed(0)
    report = verify(first_of_each_bug()[bug].model())
    assert bug in [each.name for each in report.problems], str(report)
    assert not report.skipped


@pytest.mark.parametrize("source", QUICK)
def test_correct_model_gives_no_finding(source):
    torch.manual_seed(0)
    report = verify(SOURCES[source].model())
    assert report, str(report)
    assert not report.skipped


def test_rejects_unknown_check_names():
    with pytest.raises(ValueError, match="there is no check 'future-leek': did you mean"):
        chosen_names(["future-leek"], None)
