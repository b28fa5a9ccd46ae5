"""clearformer: transformers made clear.

    import clearformer as cf

    model = cf.train("modern-small", data="my.txt", minutes=10, out="runs/mine")
    model = cf.load("runs/mine")  # or a Hugging Face folder, or an exported file
    model.generate("Once upon", max_tokens=100, temperature=0.7)

    net = cf.build(cf.families.gpt2("small"))  # an nn.Module and nothing else

Each name is imported when it is first used, so `import clearformer` does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from clearformer import moved, openmp

__version__ = "0.2.0"

if TYPE_CHECKING:
    from clearformer import (
        config,
        core,
        data,
        families,
        interpretability,
        interventions,
        learn,
    )
    from clearformer.builder import build
    from clearformer.compressor.codec import compress, decompress
    from clearformer.compressor.proof import prove
    from clearformer.config import DoRA, LoRA
    from clearformer.explore.trace import Trace, trace
    from clearformer.families import preset, presets
    from clearformer.interpretability.watch import watch
    from clearformer.model import Model, load, merge
    from clearformer.run_training import Training, train
    from clearformer.runs.log_writers import tensorboard
    from clearformer.verification.check import verify

# Public names, and where each comes from; a name without a module is a module itself.
PUBLIC = {
    "DoRA": "clearformer.config",
    "LoRA": "clearformer.config",
    "Model": "clearformer.model",
    "Trace": "clearformer.explore.trace",
    "Training": "clearformer.run_training",
    "build": "clearformer.builder",
    "compress": "clearformer.compressor.codec",
    "config": None,
    "core": None,
    "data": None,
    "decompress": "clearformer.compressor.codec",
    "families": None,
    "interpretability": None,
    "interventions": None,
    "learn": None,
    "load": "clearformer.model",
    "merge": "clearformer.model",
    "preset": "clearformer.families",
    "presets": "clearformer.families",
    "prove": "clearformer.compressor.proof",
    "tensorboard": "clearformer.runs.log_writers",
    "trace": "clearformer.explore.trace",
    "train": "clearformer.run_training",
    "verify": "clearformer.verification.check",
    "watch": "clearformer.interpretability.watch",
}

__all__ = [
    "DoRA",
    "LoRA",
    "Model",
    "Trace",
    "Training",
    "__version__",
    "build",
    "compress",
    "config",
    "core",
    "data",
    "decompress",
    "families",
    "interpretability",
    "interventions",
    "learn",
    "load",
    "merge",
    "preset",
    "presets",
    "prove",
    "tensorboard",
    "trace",
    "train",
    "verify",
    "watch",
]

moved.install()
openmp.choose_waiting()


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        from clearformer.did_you_mean import closest

        guess = closest(name, PUBLIC)
        hint = "" if guess is None else f"; did you mean {guess!r}?"
        raise AttributeError(f"module 'clearformer' has no attribute {name!r}{hint}")
    module = PUBLIC[name]
    if module is None:
        return importlib.import_module(f"clearformer.{name}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *PUBLIC})
