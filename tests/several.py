"""Running several ranks in a test: cheap children of a server that has imported torch once."""

import contextlib
import importlib.util
import inspect
import json
import multiprocessing
import os
import random
import runpy
import socket
import sys
import traceback
from contextlib import contextmanager
from pathlib import Path

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        "clearformer.runs.run",
        "clearformer.cli.main",
        "clearformer.selftest.preloaded",
        "torch.distributed.fsdp",
        "torch.distributed.checkpoint.state_dict_saver",
    ]
)


PATIENCE = 1800  # seconds: it matters only where something hangs


def free_port():
    """A port below the ephemeral range, which another process might take at any time."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port


@contextmanager
def started(world, act, folder, *arguments):
    """`world` processes that run `act(*arguments)` as torchrun's would, its output in files."""
    port = free_port()
    what = (inspect.getfile(act), act.__name__, Path(folder), arguments)
    processes = [
        # By path, since tests are not a package that a child could import.
        SERVER.Process(target=runpy.run_path, args=(__file__, {"JOB": (rank, world, port, *what)}))
        for rank in range(world)
    ]
    for process in processes:
        process.start()
    try:
        yield processes
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()


def run(world, act, folder, *arguments):
    """The result of `act` on each rank, as JSON; a failure fails the test."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with started(world, act, folder, *arguments) as processes:
        for process in processes:
            process.join(timeout=PATIENCE)
        codes = [process.exitcode for process in processes]
    said = "\n".join(path.read_text() for path in sorted(folder.glob("rank-*.txt")))
    assert codes == [0] * world, said
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(world)]


def _rank(rank, world, port, file, name, folder, arguments):
    os.environ |= {
        "RANK": f"{rank}", "LOCAL_RANK": f"{rank}", "WORLD_SIZE": f"{world}",
        "LOCAL_WORLD_SIZE": f"{world}", "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{port}",
    }  # fmt: skip
    import torch

    torch.set_num_threads(1)
    output = os.open(folder / f"rank-{rank}.txt", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    try:
        spec = importlib.util.spec_from_file_location("tests_of_several", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        result = getattr(module, name)(*arguments)
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    (folder / f"rank-{rank}.json").write_text(json.dumps(result))


if "JOB" in globals():
    _rank(*globals()["JOB"])
