"""Process exit codes, for scripts and schedulers.

0 finished or asked to stop, 1 a defect of clearformer, 2 something the user can fix (input,
settings, disk, memory, permission), 3 a loss that is NaN, 128 + N stopped by signal N after saving:
129 SIGHUP (its terminal was closed), 130 SIGINT (Ctrl-C), 143 SIGTERM. With --processes also
128 + N if a rank was killed by signal N, such as 137 by SIGKILL; saved checkpoints are kept.
"""

from __future__ import annotations

import signal

from clearformer.training.step import NonFiniteError, is_out_of_memory

DEFECT, MISTAKE, NON_FINITE = 1, 2, 3
ORPHANED = 128 + signal.SIGTERM  # the launcher is gone: as if it had sent SIGTERM


def exit_code(problem: BaseException) -> int:
    """The exit code of an error that ends a run."""
    if isinstance(problem, NonFiniteError):
        return NON_FINITE
    if isinstance(problem, ValueError | OSError) or is_out_of_memory(problem):
        return MISTAKE
    return DEFECT
