"""Speed beside other programs: training, decoding and evaluation with busy neighbours.

    python benchmarks/neighbours.py [--seconds 6] [--rounds 3] [--neighbours 0 1 2 4]

Each measurement is a process of its own, with the threads that torch takes by default, and each
round measures every policy once, in turns. A policy is how OpenMP threads wait: as clearformer
decides by watching, as torch does without it, for a fixed 3,000 iterations, and
`OMP_WAIT_POLICY=passive`. A neighbour is a Python loop on one thread.

The fair share of T threads on C cores beside N neighbours is min(1, C / (T + N)) of the speed alone
under the best policy. "Two at once" is the sum of two runs at the same time, as a share of one.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

POLICIES = {
    "clearformer": {},
    "torch's default": {"GOMP_SPINCOUNT": "300000"},
    "3,000": {"GOMP_SPINCOUNT": "3000"},
    "passive": {"OMP_WAIT_POLICY": "passive"},
}


def train() -> Callable[[], object]:
    """A training step of modern-tiny."""
    import torch

    import clearformer as cf

    model = cf.build(cf.preset("modern-tiny"))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tokens = torch.randint(0, 256, (16, 129))  # (B, T + 1)

    def step() -> None:
        logits = model(tokens[:, :-1])  # (B, T, V)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def decode() -> Callable[[], object]:
    """A generated text of 16 tokens, by a model of 12 layers of width 256."""
    from dataclasses import replace

    import clearformer as cf
    from clearformer.config import GenerationDefaults
    from clearformer.core.model import Transformer
    from clearformer.generate.language_model import LanguageModel
    from clearformer.generate.stream import stream

    config = replace(
        cf.families.gpt2("small"),
        layers=12, width=256, heads=8, hidden=1024, vocabulary=256, length=256,
    )  # fmt: skip
    module = cf.build(config).eval()
    assert isinstance(module, Transformer)
    model = LanguageModel(module, config, GenerationDefaults())
    return lambda: list(stream(model, list(range(64)), max_tokens=16))


def evaluate() -> Callable[[], object]:
    """A forward pass of modern-tiny without gradients."""
    import torch

    import clearformer as cf

    model = cf.build(cf.preset("modern-tiny")).eval()
    tokens = torch.randint(0, 256, (16, 128))

    def forward() -> None:
        with torch.inference_mode():
            model(tokens)

    return forward


WORK = {"train": train, "decode": decode, "evaluate": evaluate}


def work(name: str, seconds: float) -> None:
    """Print how often a unit of work was done per second."""
    import torch

    from clearformer.training.device import set_threads

    set_threads(torch.get_num_threads())  # as runs do, which watches how long threads wait
    act = WORK[name]()
    warm = time.perf_counter()
    while time.perf_counter() - warm < 1:
        act()
    start, done = time.perf_counter(), 0
    while (passed := time.perf_counter() - start) < seconds:
        act()
        done += 1
    print(done / passed)


def start(name: str, policy: str, seconds: float) -> subprocess.Popen[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))}
    command = [sys.executable, __file__, "--work", name, "--seconds", str(seconds)]
    return subprocess.Popen(
        command, env=clean | POLICIES[policy], stdout=subprocess.PIPE, text=True
    )


def speed(process: subprocess.Popen[str]) -> float:
    output, _ = process.communicate()
    assert process.returncode == 0
    return float(output)


@contextmanager
def busy(neighbours: int) -> Iterator[None]:
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(neighbours)
    ]
    try:
        yield
    finally:
        for each in loops:
            each.kill()
            each.wait()


def measure(name: str, options: argparse.Namespace) -> None:
    cores = len(os.sched_getaffinity(0))
    speeds: dict[tuple[str, int], list[float]] = {}
    pairs: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for count in options.neighbours:
            for policy in POLICIES:
                with busy(count):
                    taken = speed(start(name, policy, options.seconds))
                speeds.setdefault((policy, count), []).append(taken)
        for policy in POLICIES:
            both = [start(name, policy, options.seconds) for _ in range(2)]
            pairs.setdefault(policy, []).append(sum(map(speed, both)))
    middle = {key: statistics.median(each) for key, each in speeds.items()}
    alone = max(middle[policy, 0] for policy in POLICIES)
    print(f"\n{name}: {alone:.1f} per second alone; medians of {options.rounds} rounds (spread)")
    for policy in POLICIES:
        row = [f"  {policy:16s}"]
        for count in options.neighbours:
            fair = alone * min(1, cores / (cores + count))
            low, high = min(speeds[policy, count]) / fair, max(speeds[policy, count]) / fair
            row.append(f"{count}: {middle[policy, count] / fair:5.0%} ({low:.0%} to {high:.0%})")
        row.append(f"two at once: {statistics.median(pairs[policy]) / alone:.0%}")
        print("  ".join(row))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--neighbours", type=int, nargs="+", default=[0, 1, 2, 4])
    parser.add_argument("--only", nargs="+", choices=WORK, default=list(WORK))
    parser.add_argument("--work", choices=WORK, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.seconds)
        return
    print(f"share of the fair share of {len(os.sched_getaffinity(0))} cores, by busy neighbours")
    for name in options.only:
        measure(name, options)


if __name__ == "__main__":
    main()
