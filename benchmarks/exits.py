"""Exit codes of successful runs with several processes.

    python benchmarks/exits.py [--runs 20] [--control]

A tiny model trains for a few steps in two processes, with copies (DDP) and with parts (FSDP2) in
turn, again and again; every run must end with exit code 0. torch's process groups are torn down by
several threads: when a group goes while a sharded model still holds it, a run that has done all
its work aborts now and then. `--control` leaves that way, to show that this can fail. Exit code 1
if a run did not end with 0.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

TEXT = "the cat sat on the mat, and the dog sat on the log.\n" * 100

# The same but for the way out: a bare destroy_process_group under a living model.
CONTROL = """
import sys
import torch.distributed as dist
from clearformer.cli.main import main
from clearformer.distributed import parallel, process_group

kept = []
apply = parallel.FullySharded.apply
parallel.FullySharded.apply = lambda self, model: (apply(self, model), kept.append(self))[0]

def exit(self, code, say=None):
    self.heartbeat.stop()
    dist.destroy_process_group()
    sys.exit(code)

process_group.DistributedGroup.exit = exit
main(sys.argv[1:])
"""


def once(folder: Path, distribute: str, control: bool) -> int:
    data = folder / "text.txt"
    data.write_text(TEXT)
    flags = (
        f"train modern-tiny --data {data} --layers 2 --width 16 --heads 2 --key-heads 2 "
        f"--hidden 32 --length 16 --batch-size 4 --steps 3 --evaluations 1 --threads 1 --quiet "
        f"--parallel {distribute} --out {folder / 'run'}"
    )
    if not control:
        command = [sys.executable, "-m", "clearformer", *flags.split(), "--processes", "2"]
    else:
        script = folder / "control.py"
        script.write_text(CONTROL)
        start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
        command = [*start, "2", str(script), *flags.split()]
    return subprocess.run(command, capture_output=True, timeout=600).returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="of each kind")
    parser.add_argument("--control", action="store_true")
    asked = parser.parse_args()
    codes: dict[str, Counter[int]] = {"ddp": Counter(), "fsdp2": Counter()}
    began = time.monotonic()
    for _ in range(asked.runs):
        for distribute, seen in codes.items():
            with tempfile.TemporaryDirectory() as place:
                code = once(Path(place), distribute, asked.control)
            seen[code] += 1
            print(f"{distribute}: {code}", flush=True)
    for distribute, seen in codes.items():
        others = {code: count for code, count in seen.items() if code}
        print(
            f"{distribute}: {seen[0]} of {asked.runs} runs ended with 0; others {others or 'none'}"
        )
    print(f"in {time.monotonic() - began:.0f} s")
    sys.exit(any(seen[0] != asked.runs for seen in codes.values()))


if __name__ == "__main__":
    main()
