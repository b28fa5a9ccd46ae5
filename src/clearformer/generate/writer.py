"""A model with what it takes to write: its config, its tokenizer, and what follows from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from clearformer.build import pattern
from clearformer.config import ModelConfig
from clearformer.core.model import Transformer
from clearformer.text import Tokenizer

# Names that special tokens have in published tokenizers; a text begins or ends with them, unless
# a checkpoint tells by number what ends it.
BEGIN = ("<|begin_of_text|>", "<s>", "<|endoftext|>")
END = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<|eot_id|>", "<|im_end|>")

Hidden = Callable[..., Tensor]  # as Transformer.hidden


@dataclass(frozen=True)
class Writer:
    """A generator, ready to write; without a tokenizer it writes ids alone."""

    model: Transformer
    config: ModelConfig
    tokenizer: Tokenizer | None = None
    step: Hidden | None = None  # what gives hidden states of one more token; none: the usual way

    def __post_init__(self) -> None:
        self.config.require_verb("generate")
        places = torch.arange(min(self.config.length, 64))
        for each in self.config.patterns:
            ahead = pattern(each).allows(places[:, None], places[None, :]).triu(1)
            if ahead.any():
                raise ValueError(
                    f"{self.config.name} cannot write: its pattern {type(each).__name__} lets a "
                    f"token look at later ones, so combine it with Causal()"
                )

    def compiled(self, backend: str = "inductor") -> Writer:
        """The same writer, whose steps are compiled when the first one is made."""
        # Dynamic: the cache is longer at each step, and must not be compiled for each length.
        step = torch.compile(self.model.hidden, dynamic=True, backend=backend)
        return replace(self, step=step)

    def encode(self, prompt: str | Sequence[int]) -> list[int]:
        """The ids of a prompt, or the token that begins a text if the prompt is empty."""
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise ValueError("the prompt is a text, but there is no tokenizer: give ids")
            # A prompt may name special tokens; those that open every text come by themselves.
            ids = self.tokenizer.encode_marked(prompt).tolist()
            opening = list(self.tokenizer.before)
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
                f"{self.config.name} needs at least one token to go on from"
            )
        return [begin[0]]

    def ends(self) -> tuple[int, ...]:
        """Ids of the tokens that end a text."""
        known = self.config.head.ends
        ends = self.specials(END) if known is None else known
        return tuple(token for token in ends if token < self.config.vocabulary)

    def specials(self, names: Sequence[str]) -> tuple[int, ...]:
        known = getattr(self.tokenizer, "specials", {})
        return tuple(known[name] for name in names if name in known)


def require_ids(what: str, ids: Sequence[int], config: ModelConfig) -> None:
    """Refuse ids that are none of the model's: a negative one would count from the end."""
    for token in ids:
        if not 0 <= token < config.vocabulary:
            raise ValueError(
                f"{what} the id {token}, but {config.name} has the ids 0 to "
                f"{config.vocabulary - 1}: give ids of its own tokenizer"
            )
