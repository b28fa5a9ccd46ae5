"""Writing a model for other tools, and making it small or fast."""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import torch

from clearformer import limits
from clearformer.arguments import as_path, check_keywords, require_choice, require_int
from clearformer.inference.packed_linear import pack, use_fast_products
from clearformer.inference.weights import QUANTIZERS
from clearformer.model.base import ModelBase
from clearformer.runs.load import has_int8

if TYPE_CHECKING:
    from clearformer.hub.exporting import Exported
    from clearformer.hub.gguf_export import GGUFWeights


class WritingMixin(ModelBase):
    """Methods of `Model` that save, export, quantize and optimize it."""

    @check_keywords
    def save(self, path: str | os.PathLike[str]) -> Path:
        """Save weights, config and tokenizer as a run at step 0, which `load` and every command
        open.

        Args:
            path (path): A folder that does not exist yet, or is empty.

        Returns:
            Path: The folder.
        """
        from clearformer.hub.importing import Imported
        from clearformer.hub.write_run import write_run
        from clearformer.runs.state import weights

        self._require_floats()
        tensors = {
            name: tensor.detach().float().cpu().contiguous()
            for name, tensor in weights(self.module).items()
        }
        config = self.run_config
        config = replace(config, origin=None, train=replace(config.train, adapter=None))
        imported = Imported(
            self.name, self.config, config.generation, self.tokenizer, tensors, self.notes
        )
        return write_run(imported, as_path("path", path), config)

    @check_keywords
    def export(
        self,
        out: str | os.PathLike[str],
        *,
        to: Literal["huggingface", "safetensors", "gguf", "int8", "peft"] = "huggingface",
        weights: GGUFWeights | None = None,
    ) -> Exported:
        """Write the model for other tools; the result is opened again and compared.

        Args:
            out (path): The folder to write, or a ``.safetensors`` or ``.gguf`` file.
            to (str): ``"huggingface"``, a folder that ``transformers`` opens; ``"safetensors"``,
                one file with config and tokenizer; ``"gguf"``, one file for llama.cpp;
                ``"int8"``, a run with int8 weights; ``"peft"``, the adapter of a run that was
                trained with one. Default: ``"huggingface"``.
            weights (str, optional): Of a ``.gguf`` file: ``"f32"``, ``"f16"``, ``"q8_0"`` (8 bits)
                or ``"q4_0"`` (4 bits). Default: ``"f32"``.

        Returns:
            Exported: Its ``path``, ``form``, and the largest ``difference`` of logits.
        """
        from clearformer.hub.exporting import to_huggingface, to_safetensors
        from clearformer.hub.peft_export import to_peft
        from clearformer.hub.quantized import to_int8

        writers = {"huggingface": to_huggingface, "safetensors": to_safetensors}
        from_run = {"int8": to_int8, "peft": to_peft}
        require_choice("to", to, (*writers, *from_run, "gguf"))
        target = as_path("out", out)
        if weights is not None and to != "gguf":
            raise ValueError(f"`weights` is for GGUF files, but `to` is {to!r}: leave it out")
        if to in from_run:
            if self.checkpoint is None or self.path is None:
                raise ValueError(f"{self.name} is not a run: save it first, then export it")
            return from_run[to](self.path, target)
        self._require_floats()
        # What is written is float32, and compared with a model in float32.
        in_float32 = {p.dtype for p in self.module.parameters()} == {torch.float32}
        module = self._module if in_float32 else copy.deepcopy(self._module).float()
        known = self.config, self.run_config.generation, self._tokenizer(), target
        if to == "gguf":
            from clearformer.hub.gguf_export import WEIGHTS as GGUF_WEIGHTS
            from clearformer.hub.gguf_export import to_gguf

            chosen = "f32" if weights is None else weights
            require_choice("weights", chosen, GGUF_WEIGHTS)
            self.config.require_verb("generate", self.name)
            return to_gguf(module, *known, chosen)
        return writers[cast(Any, to)](module, *known)

    def quantize(self, weights: Literal["int8", "int4"] = "int8") -> Self:
        """Quantize the weights in place: smaller and faster on a CPU, not trainable.

        Args:
            weights (str): ``"int8"``, with an error that is rarely seen; or ``"int4"``, about half
                as large, for matrices between the embedding and the head. Default: ``"int8"``.

        Returns:
            Model: The model itself.
        """
        require_choice("weights", weights, tuple(QUANTIZERS))
        if "translate" in self.config.verbs:
            raise ValueError(f"{self.name} is a translator, which {weights} does not support yet")
        stored = self.checkpoint is not None and has_int8(self.checkpoint)
        if stored and weights != "int8":
            raise ValueError(
                f"{self.name} has weights in int8: make {weights} of the run that it was made from"
            )
        if not stored:
            QUANTIZERS[weights](self.module)
        self._without_floats = "was quantized"
        return self

    def compile(self, backend: str = "inductor") -> Self:
        """Compile the decoding step of `generate` when it is first used, with `torch.compile`.

        Args:
            backend (str): Of `torch.compile`. Default: ``"inductor"``.

        Returns:
            Model: The model itself.
        """
        self._backend = backend
        return self

    def optimize(self, batch_size: int = 1) -> Self:
        """Arrange the weights for fast generation on a CPU, in place.

        Args:
            batch_size (int): Texts that will be generated side by side. For more than one, matrices
                are packed: the module can then not be trained or saved. Default: 1.

        Returns:
            Model: The model itself.
        """
        require_int("batch_size", batch_size, 1, limits.MAX_BATCH)
        if batch_size == 1:
            use_fast_products(self.module)
        else:
            pack(self.module, batch_size)
            self._without_floats = "was packed by optimize"
        self._optimized = True
        return self
