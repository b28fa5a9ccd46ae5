"""Exit codes: tests/reliability/test_runs.py has each of them at the command line."""

import pytest

from clearformer.runs.exit_codes import exit_code
from clearformer.training.step import NonFiniteError


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (NonFiniteError("nan"), 3),
        (ValueError("x"), 2),
        (OSError(28, "No space left on device"), 2),
        (MemoryError(), 2),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), 2),
        (RuntimeError("CUDA out of memory. Tried to"), 2),
        (RuntimeError("shapes do not fit"), 1),
        (KeyError("x"), 1),
    ],
)
def test_exit_code_of_each_error(problem, code):
    assert exit_code(problem) == code
