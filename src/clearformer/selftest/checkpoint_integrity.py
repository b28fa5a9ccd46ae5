"""G5 and G16: damaged checkpoints are detected, and checkpoints of every format open."""

from __future__ import annotations

import json
import random
from importlib import resources
from pathlib import Path

import torch

from clearformer.runs import checkpoint, load
from clearformer.selftest.processes import require

FORMATS = resources.files("clearformer.selftest") / "formats"


def corruption(workdir: Path, *, count: int) -> str:
    """G5: a byte changed or the end cut off, in any file of a checkpoint."""
    rng = random.Random(5)
    tensors = {
        f"{name}.safetensors": {"weight": torch.randn(40, 10)}
        for name in ("model", "optimizer", "state")
    }
    documents = {f"{name}.json": {"values": list(range(60))} for name in ("state", "config")}
    for step in (1, 2):
        last = checkpoint.write(workdir, step, tensors, documents, {"torch": torch.__version__})
    files = sorted(path for path in last.folder.iterdir())
    for number in range(count):
        path = files[number % len(files)]
        content = path.read_bytes()
        at = rng.randrange(len(content))
        flipped = bytes([content[at] ^ rng.randrange(1, 256)])
        damaged = content[:at] if rng.random() < 0.4 else content[:at] + flipped + content[at + 1 :]
        path.write_bytes(damaged)
        messages: list[str] = []
        newest = checkpoint.newest(workdir, messages.append)
        damage = f"{path.name} at byte {at} of {len(content)}"
        require(newest is not None and newest.step == 1, f"not detected: {damage}")
        require("step-2" in messages[0], f"not reported: {damage}")
        path.write_bytes(content)
    require(checkpoint.verify(last.folder).step == 2, "the repaired checkpoint does not open")
    return f"{count} of {count} detected, and the checkpoint before was used"


def formats(workdir: Path, *, newest: bool) -> str:
    """G16: checkpoints of every format open and give their stored logits."""
    stored = sorted(Path(str(each)) for each in FORMATS.iterdir() if each.name.isdecimal())
    require(int(stored[-1].name) == checkpoint.FORMAT, f"format {checkpoint.FORMAT} is not stored")
    for each in stored[-1:] if newest else stored:
        opened = load.open_run(each / "step-2")
        stored_output = json.loads((each / "logits.json").read_text())
        with torch.inference_mode():
            ids = torch.from_numpy(opened.tokenizer.encode(stored_output["text"])).long()
            logits = opened.model(ids[None])[0]
        difference = (logits - torch.tensor(stored_output["logits"])).abs().max().item()
        require(difference <= 1e-5, f"format {each.name}: logits differ by {difference:.1e}")
    return f"{'the newest' if newest else f'all {len(stored)}'} of {len(stored)} formats"
