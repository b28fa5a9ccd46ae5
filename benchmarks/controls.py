"""Control experiment for `clearformer selftest`: the check finds losses with plain torch.save.

    python benchmarks/controls.py [--kills 40]

A process writes its state to one file with plain torch.save, over the old one, as many training
scripts do, and is killed at random moments as in goal G1. Part of the files must be found broken:
if none is, the kills come too late to prove anything, and the exit code is 1. (Goal G11 has its
control, a mean of means, inside.)
"""

import argparse
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch

from clearformer.selftest import processes


def save_for_ever(path: str) -> None:
    state = {str(i): torch.randn(200, 200) for i in range(40)}  # 6.4 MB: a small model's state
    while True:
        torch.save(state, path)
        time.sleep(0.01)  # a short step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=40)
    asked = parser.parse_args()
    moments, broken = random.Random(0), 0
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(processes.MODULES))
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "state.pt"
        for _ in range(asked.kills):
            path.unlink(missing_ok=True)
            process = context.Process(target=save_for_ever, args=(str(path),))
            process.start()
            while not path.exists():
                time.sleep(0.005)
            time.sleep(moments.uniform(0, 0.15))
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            try:
                torch.load(path, weights_only=True)
            except Exception:  # of many kinds, and each of them a lost run
                broken += 1
    print(f"control: plain torch.save lost its only file in {broken} of {asked.kills} kills")
    sys.exit(0 if broken else 1)


if __name__ == "__main__":
    main()
