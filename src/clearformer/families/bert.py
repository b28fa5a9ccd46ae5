"""BERT (Devlin et al. 2018): an encoder trained on masked words and next sentences."""

from clearformer.config import (
    Dropout,
    Full,
    Head,
    LayerNorm,
    Learned,
    MaskedToken,
    ModelConfig,
    Position,
    Pretraining,
    Rotary,
)
from clearformer.families.sizes import numbers

# layers, width, heads, head, position: base and large from section 3 of the paper, the smaller ones
# from Turc et al. 2019. hidden is 4 * width, a head 64 wide, throughout. The last two are not
# published: for minutes instead of days. They omit the next-sentence objective, which Liu et al.
# 2019 (RoBERTa) found not to help, and use rotary positions, since learned ones take long to learn
# which positions are adjacent: after 2,000 steps the loss is 4.3 instead of 6.0 (docs/log.md).
BERT: dict[str, tuple[int, int, int, Head, Position]] = {
    "base": (12, 768, 12, Pretraining(), Learned()),
    "large": (24, 1024, 16, Pretraining(), Learned()),
    "tiny": (2, 128, 2, Pretraining(), Learned()),
    "mini": (4, 256, 4, Pretraining(), Learned()),
    "small": (4, 512, 8, Pretraining(), Learned()),
    "medium": (8, 512, 8, Pretraining(), Learned()),
    "tiny-masked": (2, 128, 2, MaskedToken(), Rotary()),
    "mini-masked": (4, 256, 4, MaskedToken(), Rotary()),
}


def bert(size: str = "base") -> ModelConfig:
    layers, width, heads, head, position = numbers(BERT, "bert", size)
    return ModelConfig(
        name=f"bert-{size}",
        family="bert",
        vocabulary=30_522,
        length=512,
        layers=layers,
        width=width,
        heads=heads,
        hidden=4 * width,
        residual="post",
        activation="gelu",
        position=position,
        patterns=(Full(),),
        head=head,
        norm=LayerNorm(epsilon=1e-12),
        embedding_norm=LayerNorm(epsilon=1e-12),
        segments=2,
        dropout=Dropout(embedding=0.1, attention=0.1, residual=0.1),
        init="normal",
    )
