"""Transformer-XL (Dai et al. 2019): segments with a memory of earlier ones."""

from clearformer.config import (
    Biases,
    Causal,
    Dropout,
    HiddenMemory,
    ModelConfig,
    NextToken,
    RelativeXL,
)
from clearformer.families.sizes import numbers

# layers, width, heads, hidden, length (= memory), dropout, attention dropout: the released
# enwik8 scripts, base and large. Their vocabulary is the 204 bytes that occur; ours is all 256.
XL = {
    "enwik8-12": (12, 512, 8, 2048, 512, 0.1, 0.0),
    "enwik8-24": (24, 1024, 8, 3072, 768, 0.15, 0.15),
    # Not published: for a machine without a GPU.
    "small": (6, 256, 4, 1024, 128, 0.0, 0.0),
    "tiny": (3, 128, 4, 512, 64, 0.0, 0.0),
}


def xl(size: str = "enwik8-12") -> ModelConfig:
    layers, width, heads, hidden, length, dropout, attention_dropout = numbers(XL, "xl", size)
    return ModelConfig(
        name=f"xl-{size}",
        family="xl",
        vocabulary=256,
        length=length,
        layers=layers,
        width=width,
        heads=heads,
        hidden=hidden,
        residual="post",
        activation="relu",
        position=RelativeXL(),
        patterns=(Causal(),),
        head=NextToken(tied=True),
        cache=HiddenMemory(length=length),
        embedding_scale="sqrt_width",
        biases=Biases(attention=False, attention_output=False, head=True),
        dropout=Dropout(
            embedding=dropout, attention=attention_dropout, hidden=dropout, residual=dropout
        ),
        init="transformer_xl",
    )
