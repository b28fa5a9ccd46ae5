"""`clearformer import PATH_OR_NAME`: somebody's checkpoint as a run that every verb opens."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from clearformer.cli.output import say

if TYPE_CHECKING:
    from clearformer.config import AnyModelConfig
    from clearformer.text import Tokenizer


@dataclass(frozen=True)
class Import:
    """Bring in a GPT-2, BERT, Llama- or Marian-shaped checkpoint: folder, file or hub name."""

    source: tyro.conf.Positional[str]
    """A Hugging Face folder, a .safetensors file, or a name such as openai-community/gpt2."""
    out: Path | None = None
    """The run's folder; none: runs/NAME."""
    tokenizer: str | None = None
    """A folder to take the tokenizer from, or bytes; none: the checkpoint's own."""
    rotary: Literal["halves", "neighbours"] = "halves"
    """Which components rotary positions pair; Llama's own files pair neighbours."""
    revision: str | None = None
    """Which version of a checkpoint on the hub."""
    allow_bin: bool = False
    """Also read .bin and .pt files: the tensors in them, and nothing else."""

    def run(self) -> None:
        from clearformer.hub.fetch import find
        from clearformer.hub.importing import read
        from clearformer.hub.write_run import write_run

        place = find(self.source, self.revision, self.allow_bin)
        name = Path(self.source).resolve().name  # of a folder here or a name on the hub, its last
        out = self.out or Path("runs") / name.removesuffix(".safetensors")
        found = read(
            place,
            tokenizer=self.tokenizer,
            allow_bin=self.allow_bin,
            pairs=self.rotary,
        )
        write_run(found, out)
        config, tokenizer = found.config, found.tokenizer
        assert tokenizer is not None
        count = sum(tensor.numel() for tensor in found.tensors.values())
        say(
            f"{config.name}: {count:,} parameters, {config.layers} layers, width {config.width}, "
            f"{config.heads} heads, length {config.length}; {tokenizer.kind} of "
            f"{tokenizer.size:,}; head {type(config.head).__name__}"
        )
        for note in found.notes:
            say(f"note: {note}")
        say(f"next: clearformer {_next(config, tokenizer).format(shlex.quote(str(out)))}")


EXAMPLES = {
    "translate": 'translate {} "A text"',
    "generate": 'generate {} "Once upon"',
    "classify": 'classify {} "A text"',
    "fill": 'fill {} "A text with a [MASK] word"',
    "embed": 'embed {} "A text" "Another"',
}


def _next(config: AnyModelConfig, tokenizer: Tokenizer) -> str:
    """An example of the verb that fits the model's head."""
    verb = config.verbs[0]
    return EXAMPLES["embed" if verb == "fill" and tokenizer.mask is None else verb]
