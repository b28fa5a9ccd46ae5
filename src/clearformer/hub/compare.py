"""Whether two models are one: the same logits, then the same fifty greedy tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearformer.config import AnyModelConfig, NextToken, Seq2SeqConfig
from clearformer.core.model import Seq2Seq, Transformer
from clearformer.generate.beam import Beam
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.sampling import Sampling
from clearformer.generate.stream import stream
from clearformer.generate.translate import decode
from clearformer.hub.importing import import_checkpoint
from clearformer.inference.modes import evaluating

GREEDY = 50  # tokens that must come out alike
MOST_LIKELY = Sampling(temperature=0)
NEAR = 1e-5

Model = Transformer | Seq2Seq


def compare(model: Model, path: Path, config: AnyModelConfig) -> tuple[float, int]:
    """Open what was written and let both speak; ValueError if they do not agree."""
    again = import_checkpoint(path).model()
    with evaluating(model):
        apart = difference(model, again, config)
        if not apart <= NEAR:
            raise ValueError(
                f"what was written to {path} gives other logits (by {apart:.2g}): nothing is "
                f"kept; please report this"
            )
        return apart, _same_tokens(model, again, config, path)


def difference(model: Model, again: Model, config: AnyModelConfig) -> float:
    """The largest between two models' logits of a few tokens of chance, padding included."""
    tokens, keep = _example(config)
    device = next(iter(model.state_dict().values())).device
    with torch.inference_mode():
        before = _logits(model, tokens.to(device), keep.to(device))
        after = _logits(again, tokens, keep)
    pairs = zip(*(x if isinstance(x, tuple) else (x,) for x in (before, after)), strict=True)
    return max(float((one.float().cpu() - other).abs().max()) for one, other in pairs)


def _example(config: AnyModelConfig) -> tuple[Tensor, Tensor]:
    """Two rows of chance, one of them padded: tokens and keep, each (B, T)."""
    generator = torch.Generator().manual_seed(0)
    length = min(config.length, 16)
    tokens = torch.randint(config.vocabulary, (2, length), generator=generator)
    return tokens, torch.arange(length) < torch.tensor([[length], [max(1, length - 3)]])


def _logits(model: Model, tokens: Tensor, keep: Tensor) -> Any:
    if isinstance(model, Seq2Seq):
        return model(tokens, tokens.flip(1), keep)
    return model(tokens, keep)


def _same_tokens(model: Model, again: Model, config: AnyModelConfig, path: Path) -> int:
    texts = [_greedy(each, config) for each in (model, again)]
    if texts[0] != texts[1]:
        raise ValueError(
            f"what was written to {path} goes on with other tokens: nothing is kept; please report "
            f"this"
        )
    return len(texts[0])


def _greedy(model: Model, config: AnyModelConfig) -> list[int]:
    """What a model writes; nothing if it is none that writes."""
    if isinstance(model, Seq2Seq):
        assert isinstance(config, Seq2SeqConfig)
        if config.marks is None:
            return []
        rows = _example(config)[0].tolist()
        found = decode(model, config, rows, Beam(width=1), GREEDY)
        return [token for several in found for token in several[0].tokens]
    if not isinstance(config.head, NextToken) or config.past is None:
        return []
    drawn = stream(LanguageModel(model, config), [0], MOST_LIKELY, max_tokens=GREEDY)
    return [token.id for token in drawn]
