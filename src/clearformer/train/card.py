"""A run's README: what was trained, on what, how well, and how to use it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clearformer.train.run import Run


def card(run: Run) -> str:
    model, train, now = run.config.model, run.config.train, run.state
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    verb = {
        "bits_per_byte": 'generate {} "Once"',
        "accuracy": 'classify {} "A text"',
        "masked_loss": 'fill {} "A [MASK] text"',
        "chrf": 'translate {} "a text"',
    }
    origin = run.config.origin
    began = f"from {origin.folder} (sha256 {origin.sha256})" if origin else "anew"
    figure = run.task.figure.replace("_", " ")
    minutes = run.state.seconds / 60
    reached = "not evaluated"
    if now.best is not None:
        used = now.best if now.last is None or run.chosen.step == now.best["step"] else now.last
        reached = f"{figure} {used['value']:.4f} at step {used['step']}, {run.chosen.why}"
        reached += f"; {run.protocol}" if run.protocol else ""
    return f"""# {model.name} on {Path(run.config.data.source).name}

| | |
|---|---|
| parameters | {parameters:,} |
| shape | {model.layers} layers, width {model.width}, {model.heads} heads, length {model.length} |
| tokens | {run.config.data.tokenizer}, {model.vocabulary:,} of them |
| began | {began} |
| training | {run.state.step:,} steps of {train.batch} sequences, {minutes:.1f} minutes |
| optimizer | {type(train.optimizer).__name__}, learning rate {train.lr:g} |
| validation | {reached} |

![loss](loss.png)

    clearformer {verb[run.task.figure].format(run.folder.name)}
    clearformer evaluate {run.folder.name}

`config.json` holds every setting; `checkpoints/step-N/` each open on their own.
"""
