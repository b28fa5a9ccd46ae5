"""`clearformer export RUN --to huggingface --out DIR`: write a model for other tools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from clearformer.cli.output import say

if TYPE_CHECKING:
    from clearformer.hub.exporting import Exported


@dataclass(frozen=True)
class Export:
    """Write a model for other tools; the result is opened again and compared with the original."""

    run_folder: tyro.conf.Positional[Path]
    """The folder of a run, or one of its checkpoints."""
    out: Path
    """The folder to write, or a .safetensors file for --to safetensors."""
    to: Literal["huggingface", "safetensors", "int8"] = "huggingface"
    """A folder for transformers; one file with config and tokenizer; or a run with int8 weights,
    which every command opens."""

    def run(self) -> None:
        from clearformer.cli.generated import note
        from clearformer.hub.exporting import to_huggingface, to_safetensors
        from clearformer.hub.quantized import to_int8
        from clearformer.runs.load import open_any, require_floats

        if self.to == "int8":
            self._report(to_int8(self.run_folder, self.out))
            return
        notes: list[str] = []
        model, config, tokenizer, checkpoint = open_any(self.run_folder, say=notes.append)
        require_floats(checkpoint)
        note(*notes)
        write = {"huggingface": to_huggingface, "safetensors": to_safetensors}[self.to]
        self._report(write(model, config.model, tokenizer, self.out))

    def _report(self, exported: Exported) -> None:
        compared = f"opened again: logits within {exported.difference:.1g}"
        if exported.tokens:
            compared += f", {exported.tokens} greedy tokens the same"
        say(f"{exported.path}: {exported.form}; {compared}")
        for note in exported.notes:
            say(f"note: {note}")
