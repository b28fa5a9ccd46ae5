"""`clearformer import PATH_OR_NAME`: write a checkpoint of another tool as a run."""

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
    """Import a GPT-2, BERT, Llama-like or Marian checkpoint: a folder, a file or a hub name."""

    source: tyro.conf.Positional[str]
    """A Hugging Face folder, a .safetensors or .gguf file, or a name such as
    openai-community/gpt2."""
    out: Path | None = None
    """The folder of the run (default: runs/NAME)."""
    tokenizer: str | None = None
    """A folder to take the tokenizer from, or bytes (default: the checkpoint's own)."""
    rotary: Literal["halves", "neighbours"] = "halves"
    """Which components rotary positions pair; Meta's original Llama files pair neighbours."""
    revision: str | None = None
    """The revision of a checkpoint on the hub."""
    base: Path | None = None
    """For an adapter of PEFT: the run with the model that it was trained for."""
    allow_bin: bool = False
    """Also read .bin and .pt files: only the tensors in them."""

    def run(self) -> None:
        from clearformer.runs.load import is_peft

        if self.base is not None or is_peft(Path(self.source)):
            self._import_adapter()
            return
        from clearformer.hub.fetch import locate_checkpoint
        from clearformer.hub.importing import import_checkpoint
        from clearformer.hub.write_run import write_run

        path = locate_checkpoint(self.source, self.revision, self.allow_bin)
        name = Path(self.source).resolve().name  # of a path or a name on the hub
        out = self.out or Path("runs") / name.removesuffix(".safetensors").removesuffix(".gguf")
        imported = import_checkpoint(
            path,
            tokenizer=self.tokenizer,
            allow_bin=self.allow_bin,
            pairs=self.rotary,
        )
        write_run(imported, out)
        config, tokenizer = imported.config, imported.tokenizer
        assert tokenizer is not None
        count = sum(tensor.numel() for tensor in imported.tensors.values())
        say(
            f"{config.name}: {count:,} parameters, {config.layers} layers, width {config.width}, "
            f"{config.heads} heads, length {config.length}; {tokenizer.kind} of "
            f"{tokenizer.size:,}; head {type(config.head).__name__}"
        )
        for note in imported.notes:
            say(f"note: {note}")
        say(f"next: clearformer {_example(config, tokenizer).format(shlex.quote(str(out)))}")

    def _import_adapter(self) -> None:
        from clearformer.hub.peft_import import import_peft

        if self.base is None:
            raise ValueError(
                f"{self.source} is an adapter of PEFT: add --base and the run of its model"
            )
        found = import_peft(Path(self.source), self.base)
        out = found.write(self.out or Path("runs") / Path(self.source).resolve().name)
        adapter, count = found.config.train.adapter, sum(t.numel() for t in found.tensors.values())
        say(f"{type(adapter).__name__} for {self.base}: {count:,} parameters")
        say(f"next: clearformer {_example(found.config.model, found.tokenizer).format(out)}")


EXAMPLES = {
    "translate": 'translate {} "A text"',
    "generate": 'generate {} "Once upon"',
    "classify": 'classify {} "A text"',
    "predict": 'predict {} "A text"',
    "label": 'label {} "Mary lives in Paris"',
    "answer": 'answer {} "Who lives in Paris?" --context "Mary lives in Paris"',
    "fill": 'fill {} "A text with a [MASK] word"',
    "embed": 'embed {} "A text" "Another"',
}


def _example(config: AnyModelConfig, tokenizer: Tokenizer) -> str:
    """An example of a command that fits the model's head."""
    verb = config.verbs[0]
    return EXAMPLES["embed" if verb == "fill" and tokenizer.mask is None else verb]
