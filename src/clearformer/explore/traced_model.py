"""Models to trace, and text encoded as each kind of model reads it.

A generator reads a text as a prompt, a classifier and BERT between special tokens, an
encoder-decoder as a source with an end token and a target behind a start token, Transformer-XL
in segments. The ids are those that `generate`, `classify` and the other commands use.

Axes: T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from clearformer.config import AnyModelConfig, GenerationDefaults
from clearformer.core.model import Seq2Seq, Transformer
from clearformer.explore.recording import AnyTransformer
from clearformer.generate.language_model import LanguageModel
from clearformer.text import Tokenizer

START, END = "(start)", "(end)"  # how the start and end tokens of a target are displayed


@dataclass(frozen=True)
class TracedModel:
    """A module with its config and tokenizer; without a tokenizer it reads token ids."""

    module: AnyTransformer
    config: AnyModelConfig | None = None
    tokenizer: Tokenizer | None = None
    name: str = "model"
    generation: GenerationDefaults = GenerationDefaults()

    @property
    def transformer(self) -> Transformer:
        """The module of a model with one stack."""
        return cast(Transformer, self.module)

    @property
    def seq2seq(self) -> Seq2Seq:
        """The module of a model with two stacks."""
        return cast(Seq2Seq, self.module)

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The text of each id."""
        if self.tokenizer is None:
            return [str(id) for id in ids]
        added = self.added_tokens
        pieces = iter(self.tokenizer.pieces([id for id in ids if id not in added]))
        return [added[id] if id in added else next(pieces) for id in ids]

    @property
    def added_tokens(self) -> dict[int, str]:
        """Start and end tokens that are not in the tokenizer's vocabulary, by id."""
        if self.tokenizer is None:
            return {}
        names = dict(zip(self.generation.target_ids or (), (START, END), strict=False))
        return {id: name for id, name in names.items() if id >= self.tokenizer.size}


@dataclass(frozen=True)
class ModelInput:
    """The input of a model: a batch of one."""

    tokens: Tensor  # (1, T); for an encoder-decoder the source
    target: Tensor | None = None  # (1, T)
    attention_mask: Tensor | None = None  # (1, T), only if there is padding
    target_attention_mask: Tensor | None = None
    segments: Tensor | None = None  # (1, T): which sentence of a pair
    start: int = 0  # of the last segment, if the model has a memory
    segment: int = 0
    memory: int | None = None  # hidden states that each layer remembers; None: no memory

    def queries(self, part: str) -> list[int]:
        """The ids of the query positions in this part of the model."""
        if part in ("decoder", "cross"):
            assert self.target is not None
            return self.target[0].tolist()
        return self.tokens[0, self.start :].tolist()

    def keys(self, part: str) -> list[int]:
        """The ids of the key positions; those in the memory come first."""
        if part == "decoder":
            return self.queries(part)
        return self.tokens[0, self.start - self.remembered :].tolist()

    def unpadded(self) -> Any:
        """The ids as `trace` takes them, without padding."""
        tokens = _unpad(self.tokens, self.attention_mask)
        if self.target is None:
            return tokens
        return tokens, _unpad(self.target, self.target_attention_mask)

    @property
    def remembered(self) -> int:
        return min(self.start, self.memory or 0)


def as_traced_model(model: object) -> TracedModel:
    """A module, or an object that has one, such as an opened run or a translator."""
    if isinstance(model, TracedModel):
        return model
    if isinstance(model, Transformer | Seq2Seq):
        return TracedModel(model)
    owner = model if hasattr(model, "module") else getattr(model, "translator", model)
    module = getattr(owner, "module", getattr(owner, "model", None))
    config = getattr(owner, "config", None)
    if not isinstance(module, Transformer | Seq2Seq):
        raise ValueError(
            f"{type(model).__name__} is not a model and has none: pass the result of "
            f"clearformer.load or clearformer.build"
        )
    places = (owner, getattr(owner, "run_config", config))
    known = (getattr(place, "generation", None) for place in places)
    generation = next((g for g in known if isinstance(g, GenerationDefaults)), GenerationDefaults())
    config = getattr(config, "model", config)
    tokenizer, name = getattr(owner, "tokenizer", None), getattr(config, "name", "")
    return TracedModel(module, config, tokenizer, name, generation)


def encode_input(
    model: TracedModel,
    tokens: str | Tensor | Sequence[int] | tuple[Any, Any],
    *,
    pad_to: int | None = None,
    segment: int | None = None,
    memory: int | None = None,
) -> ModelInput:
    """The input for a text, ids, or a pair of either."""
    if len(model.module.stacks) == 2:
        source, target = tokens if isinstance(tokens, tuple) else (tokens, tokens)
        source = encode_source(model, source) if isinstance(source, str) else source
        target = encode_target(model, target) if isinstance(target, str) else target
        model_input = ModelInput(_batch_of_one(source), target=_batch_of_one(target))
        return model_input if pad_to is None else _padded(model_input, pad_to, model)
    if isinstance(tokens, tuple) and len(tokens) == 2 and not isinstance(tokens[0], int):
        raise ValueError("got a pair, but this model has no decoder: pass one text")
    row = _batch_of_one(encode(model, tokens) if isinstance(tokens, str) else tokens)
    model_input = ModelInput(row, segments=_sentence_ids(model, row))
    model_input = _with_memory(model_input, model, segment, memory)
    if pad_to is None:
        return model_input
    if model_input.memory is not None:
        raise ValueError("a model with a memory reads whole segments: leave pad_to out")
    return _padded(model_input, pad_to, model)


def encode(model: TracedModel, text: str) -> list[int]:
    """The ids of a text, as a model with one stack reads it."""
    tokenizer, config = model.tokenizer, model.config
    if tokenizer is None:
        raise ValueError("got a text, but the model has no tokenizer: pass token ids")
    if config is not None and "generate" in config.verbs:
        return LanguageModel(model.transformer, config, model.generation, tokenizer).encode(text)
    ids = [
        *tokenizer.prefix_ids,
        *tokenizer.encode_with_specials(text).tolist(),
        *tokenizer.suffix_ids,
    ]
    if not ids:
        raise ValueError("the text is empty: write at least one word")
    return ids


def encode_source(model: TracedModel, text: str) -> list[int]:
    """The encoder's input: the text and the end token."""
    _, end_id, tokenizer = _require_target_ids(model)
    return [*tokenizer.encode(text.strip()).tolist(), end_id]


def encode_target(model: TracedModel, text: str) -> list[int]:
    """The decoder's input: the start token and the text."""
    start_id, _, tokenizer = _require_target_ids(model)
    return [start_id, *tokenizer.encode(text.strip()).tolist()]


def _require_target_ids(model: TracedModel) -> tuple[int, int, Tokenizer]:
    """The start and the end token, and the tokenizer."""
    ids = model.generation.target_ids
    if ids is None or model.tokenizer is None:
        raise ValueError(
            "got a text, but the start and end tokens of this model are unknown: open a trained "
            "translator, or pass token ids"
        )
    return *ids, model.tokenizer


def _batch_of_one(tokens: Tensor | Sequence[int]) -> Tensor:
    ids = torch.as_tensor(tokens, dtype=torch.long)
    ids = ids[None] if ids.dim() == 1 else ids
    if ids.dim() != 2 or ids.shape[0] != 1 or ids.shape[1] == 0:
        raise ValueError(
            f"tokens have shape {tuple(ids.shape)}, but one sequence is traced: (T,) or (1, T)"
        )
    return ids


def _unpad(row: Tensor, attention_mask: Tensor | None) -> Tensor:
    return row if attention_mask is None else row[:, : int(attention_mask.sum())]


def _sentence_ids(model: TracedModel, tokens: Tensor) -> Tensor | None:
    """0 up to the first [SEP] and 1 after it, for a model with segment embeddings."""
    tokenizer = model.tokenizer
    end = None if tokenizer is None else tokenizer.specials.get("[SEP]")
    if end is None or model.transformer.embedding.segment is None:
        return None
    ends = (tokens == end).long()
    if int(ends.sum()) < 2:
        return None  # a single sentence
    return (ends.cumsum(1) - ends > 0).long()  # (1, T)


def _with_memory(
    model_input: ModelInput, model: TracedModel, segment: int | None, memory: int | None
) -> ModelInput:
    config = model.config
    if config is not None and config.memory is not None:
        segment = config.length if segment is None else segment
        memory = config.memory if memory is None else memory
    if memory is None or segment is None:
        return model_input
    if segment < 1 or memory < 0:
        raise ValueError(f"segment is {segment} and memory {memory}: at least 1 and 0")
    # Segments are counted from the beginning, as in training, so the last one may be short.
    start = (model_input.tokens.shape[1] - 1) // segment * segment
    segments = None if model_input.segments is None else model_input.segments[:, start:]
    return replace(model_input, start=start, segment=segment, memory=memory, segments=segments)


def _padded(model_input: ModelInput, length: int, model: TracedModel) -> ModelInput:
    padding = 0 if model.tokenizer is None else model.tokenizer.padding
    tokens, attention_mask = _pad(model_input.tokens, length, padding)
    if model_input.target is not None:
        target, target_attention_mask = _pad(model_input.target, length, padding)
        return replace(
            model_input,
            tokens=tokens,
            attention_mask=attention_mask,
            target=target,
            target_attention_mask=target_attention_mask,
        )
    segments = model_input.segments
    if segments is not None:
        segments, _ = _pad(segments, length, int(segments[0, -1]))
    return replace(model_input, tokens=tokens, attention_mask=attention_mask, segments=segments)


def _pad(row: Tensor, length: int, value: int) -> tuple[Tensor, Tensor]:
    """A row padded on the right to `length`, and the mask of the real positions."""
    missing = length - row.shape[1]
    if missing < 0:
        raise ValueError(f"pad_to is {length}, but there are {row.shape[1]} tokens: increase it")
    attention_mask = torch.arange(length)[None] < row.shape[1]
    return torch.nn.functional.pad(row, (0, missing), value=value), attention_mask
