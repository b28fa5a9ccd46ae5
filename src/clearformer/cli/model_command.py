"""Base of the commands that use a trained model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from clearformer.cli.generated import note

if TYPE_CHECKING:
    from clearformer.model import Model


@dataclass(frozen=True)
class ModelCommand:
    """A command whose first argument is a trained model."""

    run_folder: tyro.conf.Positional[Path]
    """A run (what --out named), one of its checkpoints, a Hugging Face folder, or an exported
    .safetensors or .gguf file."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, mps, or auto for the fastest available."""

    def load(self, **options: Any) -> Model:
        """The model, with its notes on stderr."""
        from clearformer.model import load

        model = load(self.run_folder, device=self.device, **options)
        note(*model.notes)
        return model
