"""Kill a training run at random moments, and compare the result with an uninterrupted run.

    python benchmarks/kills.py [--kills 100] [--seed 0] [--model xl-tiny] [--data FILE]

A small model with dropout (a Transformer-XL if you like, with its memory) trains in a process of
its own and saves after every step; SIGKILL comes 0 to 2 seconds after each start of training, and
the same command goes on with --resume. In the end weights, optimizer, generators and the whole
curve must be those of a run that nobody disturbed, bit for bit, and no start may have found less
than the one before. Exit code 1 if not.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from clearformer.selftest.toy_run import fingerprint, newest_step


def command(model: str, data: str, folder: Path, steps: int) -> list[str]:
    flags = (
        f"{model} --data {data} --steps {steps} --layers 2 --width 32 --heads 2 --key-heads 2 "
        "--hidden 64 --length 32 --batch-size 4 --model.dropout.residual 0.1 --evaluations 4 "
        "--save-seconds 0 --threads 1 --quiet --resume"
    )
    return [sys.executable, "-m", "clearformer", "train", *flags.split(), "--out", str(folder)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="modern-tiny")
    parser.add_argument("--data", default="python-docs")
    asked = parser.parse_args()
    moments, steps = random.Random(asked.seed), 40 * asked.kills
    with tempfile.TemporaryDirectory() as place:
        whole, killed = Path(place) / "whole", Path(place) / "killed"
        subprocess.run(
            command(asked.model, asked.data, whole, steps), check=True, capture_output=True
        )
        kills, lost, before, began = 0, 0, -1, time.monotonic()
        while True:
            process = subprocess.Popen(
                command(asked.model, asked.data, killed, steps),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            if kills < asked.kills:
                while process.poll() is None and newest_step(killed) <= before:
                    time.sleep(0.02)
                time.sleep(moments.uniform(0, 2))
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)
                    kills += 1
            code = process.wait()
            now = newest_step(killed)
            lost += now < before
            before = now
            if code == 0:
                break
            if code != -signal.SIGKILL:
                sys.exit(f"the run ended with {code} after {kills} kills")
        same = fingerprint(whole) == fingerprint(killed)
        print(
            f"{kills} kills in {time.monotonic() - began:.0f} s: {lost} went backwards; weights, "
            f"optimizer, generators and curve are {'the same bit for bit' if same else 'OTHERS'}"
        )
        sys.exit(0 if same and not lost else 1)


if __name__ == "__main__":
    main()
