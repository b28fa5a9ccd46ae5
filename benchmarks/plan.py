"""Predictions of `clearformer plan`, compared with the memory and time of the planned runs.

    python benchmarks/plan.py [--presets modern-tiny "gpt2-small --model.layers 4" ...]
        [--memory 4GB] [--steps 12] [--rounds 3]

For each preset: plan it, run the command that the plan gives for a few steps in a process of its
own, and compare the highest memory of that process (VmHWM) and the time of a step (median of the
second half: the first steps pay for what is done once; where batches have lengths of their own,
the mean of five times as many). A plan and its run follow each other in every round, and medians
are compared: a machine that is shared may be twice as fast a minute later, and neither of them is
to blame. To hold: 10 % for memory, 20 % for time.
Linux only. Data that is not there is replaced by Python's own documentation.
"""

import argparse
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from clearformer.cli.train import parse
from clearformer.runs import metrics
from clearformer.tasks.registry import task_of

PRESETS = [
    "modern-tiny", "modern-small", "generator-enwik8", "xl-tiny", "xl-small", "bert-tiny",
    "original-tiny", "classifier-imdb", "gpt2-small",
]  # fmt: skip
WATCHED = """
import sys
from clearformer.cli.main import main
try:
    main(sys.argv[2:])
except SystemExit as leaving:
    code = leaving.code
open(sys.argv[1], "w").write(open("/proc/self/status").read())
sys.exit(code)
"""


def command(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "clearformer", *words], capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def planned(preset: str, memory: str, steps: int) -> tuple[float, float, list[str]]:
    """Bytes, seconds per step, and the command to run."""
    said = command("plan", *shlex.split(preset), "--memory", memory, "--steps", str(steps))
    total, unit = re.search(r"in all +([\d.]+) (\wB) of", said).groups()  # type: ignore[union-attr]
    seconds = re.search(r"tokens, ([\d.e+-]+) s\n", said)
    assert seconds is not None
    words = shlex.split(said.splitlines()[-1])[2:]
    return float(total) * {"MB": 1e6, "GB": 1e9}[unit], float(seconds[1]), words


def taken(words: list[str], folder: Path, varied: bool) -> tuple[float, float]:
    """Bytes and seconds per step of the run itself."""
    status = folder / "status"
    more = ["--out", str(folder / "run"), "--compile", "off", "--evaluations", "1", "--quiet"]
    subprocess.run(
        [sys.executable, "-c", WATCHED, str(status), "train", *words, *more],
        check=True,
        capture_output=True,
    )
    highest = re.search(r"VmHWM:\s+(\d+)", status.read_text())
    assert highest is not None
    rows = metrics.read(folder / "run" / "metrics.jsonl")
    clock = [row["seconds"] for row in rows if row["event"] == "step"]
    apart = [after - before for before, after in pairwise(clock)]
    middle = statistics.fmean if varied else statistics.median
    return int(highest[1]) * 1024, middle(apart[len(apart) // 2 :])


def both(preset: str, memory: str, steps: int, varied: bool) -> tuple[float, float, float, float]:
    """Planned and measured bytes and seconds per step."""
    size, seconds, words = planned(preset, memory, steps)
    with tempfile.TemporaryDirectory() as folder:
        return size, seconds, *taken(words, Path(folder), varied)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--presets", nargs="+", default=PRESETS)
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{'':18}{'planned MB':>11}{'taken MB':>10}{'':>7}{'planned s':>11}{'taken s':>9}{'':>7}")
    for preset in arguments.presets:
        read = parse(shlex.split(preset))
        varied = task_of(read.model).padded
        steps = arguments.steps * (5 if varied else 1)
        rounds = [both(preset, arguments.memory, steps, varied) for _ in range(arguments.rounds)]
        memory, seconds, real, pace = map(statistics.median, zip(*rounds, strict=True))
        print(
            f"{preset:17} {memory / 1e6:>11.0f}{real / 1e6:>10.0f}{memory / real - 1:>+7.0%}"
            f"{seconds:>11.3f}{pace:>9.3f}{seconds / pace - 1:>+7.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
