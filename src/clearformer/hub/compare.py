"""Compares an exported model with the original: logits, then fifty greedy tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearformer.config import AnyModelConfig, GenerationDefaults, NextToken, Seq2SeqConfig
from clearformer.core.model import Seq2Seq, Transformer
from clearformer.generate.beam import Beam
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.sampling import Sampling
from clearformer.generate.stream import stream
from clearformer.generate.translate import decode
from clearformer.hub.importing import import_checkpoint
from clearformer.inference.modes import evaluating

GREEDY_TOKENS = 50  # tokens that must be equal
GREEDY_SAMPLING = Sampling(temperature=0)
TOLERANCE = 1e-5

Model = Transformer | Seq2Seq


def compare(
    model: Model, path: Path, config: AnyModelConfig, generation: GenerationDefaults
) -> tuple[float, int]:
    """Import what was written and compare; ValueError if logits or tokens differ."""
    copy = import_checkpoint(path).model()
    with evaluating(model):
        distance = difference(model, copy, config)
        if not distance <= TOLERANCE:
            raise ValueError(
                f"the exported model in {path} gives other logits (by {distance:.2g}): the export "
                f"was removed; please report this"
            )
        return distance, _same_tokens(model, copy, config, generation, path)


def measure(
    model: Model, copy: Model, config: AnyModelConfig, generation: GenerationDefaults
) -> tuple[float, int]:
    """How far a quantized copy is off: of logits, and after how many equal greedy tokens."""
    with evaluating(model):
        distance = difference(model, copy, config)
        texts = [_greedy(each, config, generation) for each in (model, copy)]
    unequal = (i for i, (one, other) in enumerate(zip(*texts, strict=False)) if one != other)
    return distance, next(unequal, min(map(len, texts)))


def difference(model: Model, copy: Model, config: AnyModelConfig) -> float:
    """The largest difference between two models' logits on random tokens with padding."""
    tokens, attention_mask = _example(config)
    device = next(iter(model.state_dict().values())).device
    with torch.inference_mode():
        before = _logits(model, tokens.to(device), attention_mask.to(device))
        after = _logits(copy, tokens, attention_mask)
    pairs = zip(*(x if isinstance(x, tuple) else (x,) for x in (before, after)), strict=True)
    return max(float((one.float().cpu() - other).abs().max()) for one, other in pairs)


def _example(config: AnyModelConfig) -> tuple[Tensor, Tensor]:
    """Two random rows, one of them padded: tokens and attention_mask, each (B, T)."""
    generator = torch.Generator().manual_seed(0)
    length = min(config.length, 16)
    tokens = torch.randint(config.vocabulary, (2, length), generator=generator)
    return tokens, torch.arange(length) < torch.tensor([[length], [max(1, length - 3)]])


def _logits(model: Model, tokens: Tensor, attention_mask: Tensor) -> Any:
    if isinstance(model, Seq2Seq):
        return model(tokens, tokens.flip(1), attention_mask)
    return model(tokens, attention_mask)


def _same_tokens(
    model: Model, copy: Model, config: AnyModelConfig, generation: GenerationDefaults, path: Path
) -> int:
    texts = [_greedy(each, config, generation) for each in (model, copy)]
    if texts[0] != texts[1]:
        raise ValueError(
            f"the exported model in {path} generates other tokens: the export was removed; please "
            f"report this"
        )
    return len(texts[0])


def _greedy(model: Model, config: AnyModelConfig, generation: GenerationDefaults) -> list[int]:
    """The greedy tokens of a model; empty if it does not generate."""
    if isinstance(model, Seq2Seq):
        assert isinstance(config, Seq2SeqConfig)
        if generation.target_ids is None:
            return []
        rows = _example(config)[0].tolist()
        hypotheses = decode(model, config, generation, rows, Beam(width=1), GREEDY_TOKENS)
        return [token for beams in hypotheses for token in beams[0].tokens]
    if not isinstance(config.head, NextToken) or config.cache is None:
        return []
    writer = LanguageModel(model, config, generation)
    tokens = stream(writer, [0], GREEDY_SAMPLING, max_tokens=GREEDY_TOKENS)
    return [token.id for token in tokens]
