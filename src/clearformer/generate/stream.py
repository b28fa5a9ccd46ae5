"""One token after the other, from a model with a past."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from clearformer.build import pasts
from clearformer.config import HiddenMemory, ModelConfig
from clearformer.core.model import Transformer
from clearformer.generate.choose import Sampling, choose


@dataclass(frozen=True)
class Token:
    """A token as it was drawn; bits is how surprised the model itself was."""

    id: int
    probability: float
    bits: float
    uniform: float


def stream(
    model: Transformer,
    config: ModelConfig,
    prompt: Sequence[int],
    how: Sampling,
    *,
    most: int,
    seed: int = 0,
) -> Iterator[Token]:
    """Up to `most` tokens after `prompt`, each as soon as it is drawn.

    Past the context the oldest part is dropped: the last three quarters of it are read again,
    and the text goes on from there. A Transformer-XL goes on without end, from its memory.
    """
    if not prompt:
        raise ValueError("the prompt is empty: a generator needs at least one token to start from")
    generator = torch.Generator().manual_seed(seed)
    device = next(model.parameters()).device
    dtype = next(model.parameters()).dtype
    # A memory forgets on its own, so a text that has one need never be read again.
    endless = isinstance(config.past, HiddenMemory)
    kept = list(prompt) if endless else list(prompt)[-config.length :]
    memory = pasts(config, batch=1, capacity=config.length, dtype=dtype, device=device)
    fresh = kept
    was_training = model.training
    model.eval()
    try:
        for _ in range(most):
            if len(kept) > config.length and not endless:
                kept = kept[-max(1, 3 * config.length // 4) :]
                fresh = kept
                memory = pasts(config, 1, config.length, dtype, device)
            with torch.inference_mode():
                for tokens in torch.tensor([fresh], device=device).split(config.length, dim=1):
                    hidden = model.hidden(tokens, pasts=memory)[:, -1:]
                    for past in memory:
                        past.advance()
                logits = model.head(hidden)[0, -1].float().cpu()  # (V,)
            uniform = float(torch.rand((), generator=generator, dtype=torch.float64))
            choice = choose(logits, how, uniform)
            own = float(logits.double().log_softmax(0)[choice.id])
            yield Token(choice.id, choice.probability, -own / math.log(2), uniform)
            fresh = [choice.id]
            kept.append(choice.id)
    finally:
        model.train(was_training)
