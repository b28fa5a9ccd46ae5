"""`clearformer export RUN --to huggingface --out DIR`: a trained model for other tools."""

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
    """Write a model for other tools; it is opened again and compared before it counts as done."""

    run_folder: tyro.conf.Positional[Path]
    """A run (what --out named), or one of its checkpoints."""
    out: Path
    """The folder to write; a file that ends in .safetensors, for --to safetensors."""
    to: Literal["huggingface", "safetensors", "int8"] = "huggingface"
    """A folder that transformers opens; one file with config and tokenizer in it; or a run with
    its weights in eight bits, which every verb opens."""

    def run(self) -> None:
        from clearformer.cli.generated import note
        from clearformer.hub.exporting import to_huggingface, to_safetensors
        from clearformer.hub.quantized import to_int8
        from clearformer.runs.load import open_any, require_floats

        if self.to == "int8":
            self._tell(to_int8(self.run_folder, self.out))
            return
        notes: list[str] = []
        model, config, tokenizer, found = open_any(self.run_folder, say=notes.append)
        require_floats(found)
        note(*notes)
        write = {"huggingface": to_huggingface, "safetensors": to_safetensors}[self.to]
        self._tell(write(model, config.model, tokenizer, self.out))

    def _tell(self, done: Exported) -> None:
        compared = f"opened again: logits within {done.difference:.1g}"
        if done.tokens:
            compared += f", {done.tokens} greedy tokens the same"
        say(f"{done.path}: {done.form}; {compared}")
        for note in done.notes:
            say(f"note: {note}")
