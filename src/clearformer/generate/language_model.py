"""A language model: a module with its config, its end tokens and its tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from clearformer.config import GenerationDefaults, ModelConfig
from clearformer.core.model import Transformer
from clearformer.inference.decoder import Decoder, Hidden
from clearformer.text import Tokenizer

# Special tokens of published tokenizers that begin or end a text, unless the checkpoint gives the
# ids of its end-of-sequence tokens.
BEGIN = ("<|begin_of_text|>", "<s>", "<|endoftext|>")
END = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<|eot_id|>", "<|im_end|>")


@dataclass(frozen=True)
class LanguageModel:
    """A decoder that generates text, or ids alone if it has no tokenizer."""

    module: Transformer
    config: ModelConfig
    generation: GenerationDefaults
    tokenizer: Tokenizer | None = None
    step: Hidden | None = None  # a compiled `module.hidden` for one token

    def __post_init__(self) -> None:
        self.config.require_verb("generate")
        places = torch.arange(min(self.config.length, 64))
        for each in self.config.patterns:
            ahead = each.allows(places[:, None], places[None, :]).triu(1)
            if ahead.any():
                raise ValueError(
                    f"{self.config.name} cannot generate: its pattern {type(each).__name__} lets a "
                    f"token attend to later ones, so combine it with Causal()"
                )

    def compiled(self, backend: str = "inductor") -> LanguageModel:
        """The same model with a decoding step that is compiled when it is first used."""
        # Dynamic, because the cache grows with each step.
        step = torch.compile(self.module.hidden, dynamic=True, backend=backend)
        return replace(self, step=step)

    def decoder(self, chunk: int | None = None) -> Decoder:
        """A decoder with an empty cache."""
        return Decoder(self.module, self.config, step=self.step, chunk=chunk)

    def encode(self, prompt: str | Sequence[int]) -> list[int]:
        """The ids of a prompt; of an empty one, the token that begins a text."""
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise ValueError("the prompt is a string, but there is no tokenizer: give ids")
            # A prompt may contain special tokens; those that begin every text are added.
            ids = self.tokenizer.encode_with_specials(prompt).tolist()
            opening = list(self.tokenizer.prefix_ids)
            if ids and ids[: len(opening)] != opening:
                ids = opening + ids
        else:
            ids = [int(token) for token in prompt]
        if ids:
            require_ids("the prompt has", ids, self.config)
            return ids
        begin = self.specials(BEGIN)
        if not begin:
            why = (
                "without a tokenizer it is not known which token begins a text"
                if self.tokenizer is None
                else f"a {self.tokenizer.kind} tokenizer has no token that begins a text"
            )
            raise ValueError(
                f"the prompt is empty, and {why}: "
                f"{self.config.name} needs at least one token to continue"
            )
        return [begin[0]]

    def eos_ids(self) -> tuple[int, ...]:
        """The ids of the end-of-sequence tokens."""
        known = self.generation.end_ids
        ends = self.specials(END) if known is None else known
        return tuple(token for token in ends if token < self.config.vocabulary)

    def specials(self, names: Sequence[str]) -> tuple[int, ...]:
        """The ids of the special tokens among these names."""
        known = getattr(self.tokenizer, "specials", {})
        return tuple(known[name] for name in names if name in known)


def require_ids(what: str, ids: Sequence[int], config: ModelConfig) -> None:
    """Raise ValueError for ids outside the vocabulary; a negative one would index from the end."""
    for token in ids:
        if not 0 <= token < config.vocabulary:
            raise ValueError(
                f"{what} the id {token}, but {config.name} has the ids 0 to "
                f"{config.vocabulary - 1}: give ids of its own tokenizer"
            )
