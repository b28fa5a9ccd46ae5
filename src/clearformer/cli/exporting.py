"""`clearformer export RUN --to huggingface --out DIR`: a trained model for other tools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro


@dataclass(frozen=True)
class Export:
    """Write a model for other tools; it is opened again and compared before it counts as done."""

    run_folder: tyro.conf.Positional[Path]
    """A run (what --out named), or one of its checkpoints."""
    out: Path
    """The folder to write; a file that ends in .safetensors, for --to safetensors."""
    to: Literal["huggingface", "safetensors"] = "huggingface"
    """A folder that transformers opens, or one file with config and tokenizer in it."""

    def run(self) -> None:
        from clearformer.hub.exporting import to_huggingface, to_safetensors
        from clearformer.train.folder import open_any

        model, config, tokenizer, _ = open_any(self.run_folder)
        write = {"huggingface": to_huggingface, "safetensors": to_safetensors}[self.to]
        done = write(model, config.model, tokenizer, self.out)
        compared = f"opened again: logits within {done.difference:.1g}"
        if done.tokens:
            compared += f", {done.tokens} greedy tokens the same"
        print(f"{done.path}: {done.form}; {compared}")
        for note in done.notes:
            print(f"note: {note}")
