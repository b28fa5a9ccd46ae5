"""`--processes N`: start N copies of this command on this machine, and look after them.

It is torchrun's own machinery on the loopback interface, so what holds under torchrun holds
here; but a mistake stays one line, and the exit code is that of the processes.
"""

from __future__ import annotations

import logging
import os
import sys
import uuid
import warnings
from collections.abc import Sequence

from clearformer.cli.output import tell


def launch(processes: int, words: Sequence[str]) -> int:
    """Run `clearformer WORDS` in so many processes; the exit code of all together."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # What a process has to say it says itself; torch gives each of its loggers a level of its own.
    logging.disable(logging.ERROR)
    # Nor is a stack of C++ frames an answer, where the launcher is killed and its store is gone.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        monitor_interval=0.1,
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            elastic_launch(config, sys.executable)("-m", "clearformer", *words)
    except ChildFailedError as problem:
        rank, failure = problem.get_first_failure()
        if failure.exitcode >= 0:
            return failure.exitcode
        tell(
            f"clearformer: rank {rank} was ended by signal {-failure.exitcode}; what was saved is "
            f"kept: go on with --resume"
        )
        return 128 - failure.exitcode
    except SignalException as problem:
        return 128 + problem.sigval
    finally:
        logging.disable(logging.NOTSET)
    return 0
