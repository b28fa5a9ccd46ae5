"""Model card of a run (README.md): settings, data, metrics and how to use it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from clearformer.escape import escape_line
from clearformer.runs.remarks import remarks

if TYPE_CHECKING:
    from clearformer.runs.run import Run


def _plain(text: str) -> str:
    """An untrusted name, escaped for Markdown: no markup, no HTML, one line."""
    return re.sub(r"[\\`*\[\]<>|#&~]", r"\\\g<0>", escape_line(text))


def card(run: Run) -> str:
    model, train, now = run.config.model, run.config.train, run.state
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    example = {
        "generate": '"Once"',
        "classify": '"A text" --second "Another"' if model.head.two_texts else '"A text"',
        "predict": '"A text"',
        "label": '"Mary lives in Paris"',
        "answer": '"Who lives in Paris?" --context "Mary lives in Paris"',
        "fill": '"A [MASK] text"',
        "translate": '"a text"',
        "embed": '"A text"',
    }
    verb = model.verbs[0]
    origin = run.config.origin
    started = f"{_plain(origin.folder)} (sha256 {origin.sha256})" if origin else "random weights"
    figure = run.task.metric.replace("_", " ")
    minutes = run.state.seconds / 60
    reached = "not evaluated"
    if now.best is not None:
        used = now.best if now.last is None or run.selected.step == now.best["step"] else now.last
        reached = f"{figure} {used['value']:.4f} at step {used['step']}, {run.selected.why}"
        reached += f"; {run.protocol}" if run.protocol else ""
    # Absolute, so that the commands work from anywhere.
    folder = escape_line(shlex.quote(str(run.folder.absolute())))
    beside = f"| baseline | {run.baseline} |\n" if run.baseline else ""
    noted = "".join(f"\n- {_plain(remark)}" for remark in remarks(run))
    return (
        f"""# {_plain(model.name)} on {_plain(Path(run.config.data.source).name)}

| | |
|---|---|
| parameters | {parameters:,} |
| shape | {model.layers} layers, width {model.width}, {model.heads} heads, length {model.length} |
| tokens | {run.config.data.tokenizer}, {model.vocabulary:,} of them |
| initialized from | {started} |
| training | {run.state.step:,} steps of {train.batch_size} sequences, {minutes:.1f} minutes |
| optimizer | {type(train.optimizer).__name__}, learning rate {train.learning_rate:g} |
| validation | {reached} |
{beside}
![loss](loss.png)

    clearformer {verb} {folder} {example[verb]}
    clearformer evaluate {folder}

`config.json` holds every setting; `checkpoints/step-N/` each open on their own.
{noted}
""".rstrip()
        + "\n"
    )
