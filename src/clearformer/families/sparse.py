"""Sparse Transformers (Child et al. 2019): long contexts with few keys for each query."""

from clearformer.config import (
    Causal,
    Dropout,
    Fixed,
    KVCache,
    Learned,
    Local,
    ModelConfig,
    NextToken,
    Pattern,
    PerHead,
    Strided,
)
from clearformer.families.sizes import numbers

# layers, width, heads, length, dropout, patterns. enwik8: section 7.2 of the paper (fixed, a
# stride of 128, 32 summary places). strided: the same shape with the paper's other pattern,
# its two halves on alternating layers; merged and heads: both halves in every layer, in each
# head or in every other. 16k and small are ours, for a machine without a GPU.
SPARSE: dict[str, tuple[int, int, int, int, float, tuple[Pattern, ...]]] = {
    "enwik8": (30, 512, 8, 12_288, 0.4, (Causal() & Fixed(stride=128, summary=32),)),
    "strided": (
        30,
        512,
        8,
        12_288,
        0.4,
        (Causal() & Local(window=128), Causal() & Strided(stride=128)),
    ),
    "merged": (
        30,
        512,
        8,
        12_288,
        0.4,
        (Causal() & (Local(window=128) | Strided(stride=128)),),
    ),
    "heads": (
        30,
        512,
        8,
        12_288,
        0.4,
        (Causal() & PerHead(patterns=(Local(window=128), Strided(stride=128))),),
    ),
    "16k": (
        4,
        256,
        8,
        16_384,
        0.0,
        (Causal() & Local(window=128), Causal() & Strided(stride=128)),
    ),
    "small": (
        6,
        256,
        8,
        2048,
        0.0,
        (Causal() & Local(window=64), Causal() & Strided(stride=64)),
    ),
}


def sparse(size: str = "enwik8") -> ModelConfig:
    layers, width, heads, length, dropout, patterns = numbers(SPARSE, "sparse", size)
    return ModelConfig(
        name=f"sparse-{size}",
        family="sparse",
        vocabulary=256,
        length=length,
        layers=layers,
        width=width,
        heads=heads,
        hidden=4 * width,
        residual="pre",
        activation="gelu",
        position=Learned(),
        patterns=patterns,
        head=NextToken(tied=False),
        cache=KVCache(),
        dropout=Dropout(embedding=dropout, residual=dropout),
        init="sparse",
        kernel="blockwise",
    )
