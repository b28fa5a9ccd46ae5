"""`clearformer export RUN --to huggingface --out DIR`: write a model for other tools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from clearformer.cli.model_command import ModelCommand
from clearformer.cli.output import say

if TYPE_CHECKING:
    from clearformer.hub.exporting import Exported


@dataclass(frozen=True)
class Export:
    """Write a model for other tools; the result is opened again and compared with the original."""

    run_folder: tyro.conf.Positional[Path]
    """A run (what --out named), one of its checkpoints, a Hugging Face folder, or an exported
    .safetensors or .gguf file."""
    out: Path
    """The folder to write, or a .safetensors or .gguf file for --to safetensors and --to gguf."""
    to: Literal["huggingface", "safetensors", "gguf", "int8", "peft"] = "huggingface"
    """A folder for transformers; one file with config and tokenizer; one file for llama.cpp; a run
    with int8 weights, which every command opens; or the adapter alone, for PEFT."""
    weights: Literal["f32", "f16", "q8_0", "q4_0"] | None = None
    """With --to gguf: 32, 16, 8 or 4 bits for each weight (default: f32)."""

    def run(self) -> None:
        model = ModelCommand(self.run_folder).load()
        self._report(model.export(self.out, to=self.to, weights=self.weights))

    def _report(self, exported: Exported) -> None:
        compared = f"opened again: logits within {exported.difference:.1g}"
        if exported.tokens:
            compared += f", {exported.tokens} greedy tokens the same"
        say(f"{exported.path}: {exported.form}; {compared}")
        for note in exported.notes:
            say(f"note: {note}")
