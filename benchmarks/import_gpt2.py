"""Time and memory of `clearformer import` for GPT-2 small.

    python benchmarks/import_gpt2.py [--folder GPT2] [--rounds 3]

Without a folder, random weights of GPT-2 small's shape are written first, in its own layout
(548 MB with the transposed matrices, as published), with a small vocabulary's merges. Time is
of the whole process and of the work after `import torch`; memory is the largest resident set,
files that are mapped included, less what the process has after `import torch`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

# Runs in a process of its own, so that its memory is its own.
MEASURED = """
import json, re, sys, time
from pathlib import Path

def peak():
    # Not getrusage: it also counts what the parent had when it made this process.
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

import torch
import clearformer.hub.importing, clearformer.hub.write_run
before, began, worked = peak(), time.perf_counter(), time.process_time()
found = clearformer.hub.importing.import_checkpoint(Path(sys.argv[1]))
read, memory = time.perf_counter(), peak()
clearformer.hub.write_run.write_run(found, Path(sys.argv[2]))
written = time.perf_counter()
size = sum(t.numel() * t.element_size() for t in found.tensors.values())
print(json.dumps({
    "read": read - began, "all": written - began, "work": time.process_time() - worked,
    "size": size,
    "memory": (peak() - before) / size, "memory_read": (memory - before) / size,
}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = asked.folder or write_random(Path(place) / "gpt2")
        for number in range(asked.rounds):
            out = Path(place) / f"run-{number}"
            command = [sys.executable, "-c", MEASURED, str(folder), str(out)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            print(
                f"{found['size'] / 2**20:.0f} MiB of weights: checked and read in "
                f"{found['read']:.2f} s, a run on disk after {found['all']:.2f} s "
                f"({found['work']:.2f} s of processor time); peak memory "
                f"{found['memory_read']:.2f}x the weights after reading, "
                f"{found['memory']:.2f}x in all"
            )


def write_random(folder: Path) -> Path:
    """GPT-2 small's shapes and names, with a byte-level vocabulary of its size."""
    import torch
    from safetensors.torch import save_file

    from clearformer.builder import build
    from clearformer.families import gpt2
    from clearformer.hub import tensor_names
    from clearformer.hub.gpt2 import GPT2
    from clearformer.text.specs import byte_characters

    folder.mkdir()
    config = gpt2("small")
    model = build(config)
    theirs: dict[str, torch.Tensor] = {}
    for name, parameter in model.named_parameters():
        found, layout = tensor_names.their_names(GPT2.renames(config), name)
        theirs |= dict(zip(found, layout.split(parameter.detach(), config), strict=True))
    save_file(theirs, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(GPT2.write_config(config)))
    letters = byte_characters()
    pairs = [(a, b) for a in letters for b in letters][: config.vocabulary - 257]
    tokens = [*letters, *(a + b for a, b in pairs), "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(map(" ".join, pairs)) + "\n")
    return folder


if __name__ == "__main__":
    main()
