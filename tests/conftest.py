"""What all tests share: one thread (tensors are tiny), one seed, a small version of each family,
and texts that are hard to encode.
"""

import dataclasses
import importlib.util
import random
from pathlib import Path

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


@pytest.fixture(autouse=True)
def float32_unless_asked(monkeypatch):
    """Training in tests is the same on every machine, whatever it multiplies in."""
    monkeypatch.setattr("clearformer.train.precision.multiplies_in_half", lambda device: False)


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


# --- texts ---------------------------------------------------------------------------------

# Where alphabets, marks, combining signs, emoji, private use and the far planes are.
RANGES = [
    (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x5FF), (0x900, 0x97F), (0x2000, 0x206F),
    (0x3040, 0x30FF), (0x4E00, 0x4FFF), (0xAC00, 0xAD00), (0xE000, 0xE0FF), (0xFE00, 0xFE0F),
    (0x1F300, 0x1F6FF), (0xE0100, 0xE01EF), (0x10FF00, 0x10FFFF),
]  # fmt: skip
SPACES = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\x1c", "\x85", "\u2028", "   \n"]
MARKS = [
    "<br />",
    "don't",
    "'s",
    "<|endoftext|>",
    "[MASK]",
    "[CLS]",
    "##ing",
    "Ġ",
    "123456",
    "A'll",
]


@pytest.fixture(scope="session")
def strange_texts():
    chance = random.Random(0)
    texts = ["", " ", "\n", "a", "\ufeff", "e\u0301", "👩‍👩‍👧", "ΣΑΣ", "İ", "\x00", "\x7f\x80"]
    for _ in range(150):
        parts = []
        for _ in range(chance.randrange(1, 40)):
            kind = chance.random()
            if kind < 0.25:
                parts.append(chance.choice(SPACES))
            elif kind < 0.4:
                parts.append(chance.choice(MARKS))
            else:
                low, high = chance.choice(RANGES)
                word = (chr(chance.randint(low, high)) for _ in range(chance.randrange(1, 8)))
                parts.append("".join(word))
        texts.append("".join(parts))
    return texts


@pytest.fixture(scope="session")
def prose():
    """Plain English, from Python's own help."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics)[:25])


@pytest.fixture(scope="session")
def several():
    """Several ranks for a test (several.py)."""
    path = Path(__file__).with_name("several.py")
    spec = importlib.util.spec_from_file_location("several", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
