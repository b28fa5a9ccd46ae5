"""What all tests share: one thread (tensors are tiny), one seed, a small version of each family."""

import dataclasses

import pytest
import torch

from clearformer.config import (
    Causal,
    Classifier,
    Dropout,
    HiddenMemory,
    Local,
    MaskedToken,
    NextToken,
    Pretraining,
    Seq2SeqConfig,
    Strided,
)
from clearformer.core.model import Batch, PairBatch
from clearformer.families import preset

torch.set_num_threads(1)

SMALL = {
    "vocabulary": 13,
    "length": 12,
    "layers": 2,
    "width": 16,
    "heads": 4,
    "hidden": 24,
    "dropout": Dropout(),
}
OWN = {
    "original": {"decoder_layers": 2},
    "xl": {"past": HiddenMemory(length=12)},
    "sparse": {"patterns": (Causal() & Local(window=3), Causal() & Strided(stride=3))},
    "modern": {"key_heads": 2},
}


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def small():
    """A family's first preset with tiny numbers and no dropout, then with `changes`."""

    def config(family, **changes):
        return dataclasses.replace(preset(family), **{**SMALL, **OWN.get(family, {}), **changes})

    return config


@pytest.fixture(scope="session")
def scrambled():
    """Move every weight away from its start, so that nothing is zero, one or equal by recipe."""

    def scramble(model):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        return model

    return scramble


@pytest.fixture(scope="session")
def example():
    """A random batch that the model of a config can learn from."""

    def batch(config, size=2, length=8):
        def ids(count, *shape):
            return torch.randint(count, shape)

        tokens, targets = (ids(config.vocabulary, size, length) for _ in range(2))
        if isinstance(config, Seq2SeqConfig):
            return PairBatch(ids(config.vocabulary, size, length - 1), tokens, targets)
        match config.head:
            case NextToken() | MaskedToken():
                return Batch(tokens, targets)
            case Classifier(classes=classes):
                return Batch(tokens, ids(classes, size))
            case Pretraining():
                return Batch(tokens, (targets, ids(2, size)), segments=ids(2, size, length))

    return batch


@pytest.fixture(scope="session")
def logits():
    """All logits of a model for a batch, as a tuple of tensors."""

    def run(model, batch):
        if isinstance(batch, PairBatch):
            return (model(batch.source, batch.target, batch.source_keep, batch.target_keep),)
        out = model(batch.tokens, batch.keep, batch.segments)
        return out if isinstance(out, tuple) else (out,)

    return run


@pytest.fixture(scope="session")
def gradients():
    """Gradients of a model's summed loss on some batches, by parameter name."""

    def run(model, *batches):
        model.zero_grad(set_to_none=True)
        for batch in batches:
            total, _ = model.loss(batch)
            total.sum().backward()
        return {name: p.grad.clone() for name, p in model.named_parameters()}

    return run
