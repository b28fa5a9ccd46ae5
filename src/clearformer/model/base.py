"""ModelBase: a module with its config and tokenizer, and the checks that its methods share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from clearformer.arguments import Text, as_batch, require_choice
from clearformer.builder import outline
from clearformer.config import AnyModelConfig, GenerationDefaults, RunConfig, Verb
from clearformer.generate.language_model import require_ids
from clearformer.runs.load import has_int8, require_floats
from clearformer.text import Tokenizer
from clearformer.training.device import device_of

if TYPE_CHECKING:
    from clearformer.runs.checkpoint import Checkpoint

Texts = Text | Sequence[Text] | Tensor
Strings = list[str] | tuple[str, ...]
DTYPES = ("float32", "float64", "bfloat16", "float16")


class ModelBase:
    """What `Model` holds; each of the other files adds the methods of one kind of use."""

    def __init__(
        self,
        module: nn.Module,
        config: AnyModelConfig,
        tokenizer: Tokenizer | None = None,
        *,
        run_config: RunConfig | None = None,
        path: Path | None = None,
        checkpoint: Checkpoint | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.module = module
        self.config = config
        self.tokenizer = tokenizer
        self.path = path
        self.checkpoint = checkpoint
        self.notes = notes
        self._run_config = run_config
        self._in_huge_pages = False
        self._optimized = False  # by `optimize`, in place
        self._without_floats = ""  # how the module lost its float weights, if it did
        self._backend: str | None = None  # of a compiled decoding step

    @property
    def run_config(self) -> RunConfig:
        if self._run_config is None:
            from clearformer.hub.write_run import default_run_config

            self._run_config = default_run_config(self.config, GenerationDefaults(), self.tokenizer)
        return self._run_config

    @property
    def name(self) -> str:
        """The path that it was loaded from, or the name of its config."""
        return self.config.name if self.path is None else str(self.path)

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    @property
    def parameter_count(self) -> int:
        """The number of its parameters, shared ones counted once."""
        quantized = self.checkpoint is not None and has_int8(self.checkpoint)
        module = outline(self.config) if self._without_floats or quantized else self.module
        return sum(parameter.numel() for parameter in module.parameters())

    def __repr__(self) -> str:
        config, count = self.config, f"{self.parameter_count:,} parameters"
        layers = f"{config.layers} layer{'' if config.layers == 1 else 's'}"
        shape = f"{layers}, width {config.width}, {config.heads} heads"
        return f"<Model {self.name}: {config.noun}, {count}, {shape}; {', '.join(config.verbs)}>"

    def to(self, device: str | torch.device, dtype: str | torch.dtype | None = None) -> Self:
        """Move the module to a device, and cast it if a dtype is given; return the model itself."""
        self.module.to(device=as_device(device), dtype=as_dtype(dtype))
        self._in_huge_pages = False
        return self

    @property
    def _module(self) -> Any:
        """The module as a class of core."""
        return self.module

    def _texts(self, texts: Any, verb: Verb) -> tuple[list[Text], bool]:
        self.config.require_verb(verb, self.name)
        batch, single = as_batch(texts)
        for text in batch:
            if not isinstance(text, str):
                require_ids("a text has", text, self.config)
        return batch, single

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise ValueError(
                f"{self.name} has no tokenizer: load it with tokenizer=, a folder that has one"
            )
        return self.tokenizer

    def _require_floats(self) -> None:
        if self._without_floats:
            raise ValueError(
                f"{self.name} {self._without_floats}, so its weights cannot be written: load it "
                f"again without that"
            )
        if self.checkpoint is not None:
            require_floats(self.checkpoint)


def as_device(device: str | torch.device) -> torch.device:
    if not isinstance(device, str | torch.device):
        raise ValueError(f"`device` is {device!r:.60}, but it must be a name such as cpu or cuda")
    found = device_of(str(device))
    if found.type == "meta":
        raise ValueError("`device` is meta, which holds no numbers: choose auto or cpu")
    return found


def as_dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    if dtype is None:
        return None
    name = str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else dtype
    require_choice("dtype", name, DTYPES)
    found: torch.dtype = getattr(torch, name)
    return found
