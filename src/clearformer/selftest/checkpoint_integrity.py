"""G5 and G16: damage is noticed before a number is used, and what was ever written still opens."""

from __future__ import annotations

import json
import random
from importlib import resources
from pathlib import Path

import torch

from clearformer.runs import checkpoint, load
from clearformer.selftest.processes import Missed, require

FORMATS = resources.files("clearformer.selftest") / "formats"


def corruption(place: Path, *, count: int) -> str:
    """G5: a byte changed or the end cut off, in any file of a checkpoint."""
    chance = random.Random(5)
    tensors = {
        f"{name}.safetensors": {"weight": torch.randn(40, 10)}
        for name in ("model", "optimizer", "state")
    }
    documents = {f"{name}.json": {"values": list(range(60))} for name in ("state", "config")}
    for step in (1, 2):
        last = checkpoint.write(place, step, tensors, documents, {"torch": torch.__version__})
    files = sorted(path for path in last.folder.iterdir())
    for number in range(count):
        path = files[number % len(files)]
        content = path.read_bytes()
        at = chance.randrange(len(content))
        flipped = bytes([content[at] ^ chance.randrange(1, 256)])
        damaged = (
            content[:at] if chance.random() < 0.4 else content[:at] + flipped + content[at + 1 :]
        )
        path.write_bytes(damaged)
        said: list[str] = []
        found = checkpoint.newest(place, said.append)
        what = f"{path.name} at byte {at} of {len(content)}"
        require(found is not None and found.step == 1, f"not noticed: {what}")
        require("step-2" in said[0], f"not said: {what}")
        path.write_bytes(content)
    require(checkpoint.verify(last.folder).step == 2, "the mended one does not open")
    return f"{count} of {count} noticed, and the one before was taken"


def formats(place: Path, *, newest: bool) -> str:
    """G16: checkpoints of every format there ever was open and give their stored logits."""
    stored = sorted(Path(str(each)) for each in FORMATS.iterdir() if each.name.isdecimal())
    require(int(stored[-1].name) == checkpoint.FORMAT, f"format {checkpoint.FORMAT} is not stored")
    for each in stored[-1:] if newest else stored:
        opened = load.open_run(each / "step-2")
        wanted = json.loads((each / "logits.json").read_text())
        with torch.inference_mode():
            ids = torch.from_numpy(opened.tokenizer.encode(wanted["text"])).long()
            logits = opened.model(ids[None])[0]
        difference = (logits - torch.tensor(wanted["logits"])).abs().max().item()
        if difference > 1e-5:
            raise Missed(f"format {each.name}: logits differ by {difference:.1e}")
    return f"{'the newest' if newest else f'all {len(stored)}'} of {len(stored)} formats"
