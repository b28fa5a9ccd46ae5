"""llama.cpp as a contestant: a random model of ours as a GGUF file, decoded greedily.

The calls are those of llama.h, without the Python of llama-cpp-python's own sampling, which would
slow it down. `pip install '.[llama-cpp]'` builds it for the CPU at hand.
"""

import ctypes
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clearformer.builder import build
from clearformer.config import GenerationDefaults, ModelConfig
from clearformer.core.model import Transformer
from clearformer.hub.gguf_export import GGUFWeights, to_gguf
from clearformer.text import BytePairs, Tokenizer
from clearformer.text.specs import BytePairSpec, byte_characters


def tokenizer_of(size: int) -> Tokenizer:
    """A byte-pair tokenizer with this number of tokens, whose texts nobody reads."""
    characters = list(byte_characters())
    pairs = [(a, b) for a in characters for b in characters][: size - len(characters)]
    return BytePairs(BytePairSpec((*characters, *(a + b for a, b in pairs)), tuple(pairs)))


class LlamaCpp:
    """A model in llama.cpp, which continues prompts greedily."""

    def __init__(self, config: ModelConfig, weights: GGUFWeights, batch: int, context: int) -> None:
        import llama_cpp

        self.library: Any = llama_cpp
        self.vocabulary = config.vocabulary
        llama_cpp.llama_backend_init()
        # Its log would be printed between the tables.
        self.quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.quiet, ctypes.c_void_p(0))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.gguf"
            tokenizer = tokenizer_of(config.vocabulary)
            ours = build(config).eval()
            assert isinstance(ours, Transformer)
            to_gguf(ours, config, GenerationDefaults(), tokenizer, path, weights)
            settings = llama_cpp.llama_model_default_params()
            settings.use_mmap = False  # so that the file can be removed, and pages are its own
            self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), settings)
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = context * batch
        settings.n_batch = settings.n_ubatch = context * batch
        settings.n_seq_max = batch
        settings.n_threads = settings.n_threads_batch = torch.get_num_threads()
        self.context = llama_cpp.llama_init_from_model(self.model, settings)
        self.batch = llama_cpp.llama_batch_init(context * batch, 0, batch)

    def __call__(self, prompts: Sequence[Sequence[int]], new: int) -> list[list[int]]:
        library = self.library
        library.llama_memory_clear(library.llama_get_memory(self.context), True)
        answers: list[list[int]] = [[] for _ in prompts]
        tokens, start = [list(prompt) for prompt in prompts], 0
        for _ in range(new):
            outputs = self._decode(tokens, start)
            start += len(tokens[0])
            tokens = [[int(self._logits(output).argmax())] for output in outputs]
            for answer, (token,) in zip(answers, tokens, strict=True):
                answer.append(token)
        return answers

    def _decode(self, tokens: Sequence[Sequence[int]], start: int) -> list[int]:
        """Read the next tokens of each sequence; the places of their last ones in the batch."""
        batch, place, last = self.batch, 0, []
        for sequence, each in enumerate(tokens):
            for offset, token in enumerate(each):
                batch.token[place] = token
                batch.pos[place] = start + offset
                batch.n_seq_id[place] = 1
                batch.seq_id[place][0] = sequence
                batch.logits[place] = offset == len(each) - 1
                place += 1
            last.append(place - 1)
        batch.n_tokens = place
        if self.library.llama_decode(self.context, batch):
            raise RuntimeError("llama.cpp could not decode")
        return last

    def _logits(self, place: int) -> Any:
        pointer = self.library.llama_get_logits_ith(self.context, place)
        return np.ctypeslib.as_array(pointer, shape=(self.vocabulary,))
