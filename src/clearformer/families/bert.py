"""BERT (Devlin et al. 2018): an encoder that learns from hidden words and next sentences."""

from clearformer.config import (
    Dropout,
    Full,
    Head,
    LayerNorm,
    Learned,
    MaskedToken,
    ModelConfig,
    Pretraining,
)
from clearformer.families.sizes import numbers

# layers, width, heads, head: base and large from section 3 of the paper, the smaller ones from
# Turc et al. 2019. hidden is 4 * width, a head 64 wide, throughout. The last two leave out the
# next sentence, which Liu et al. 2019 (RoBERTa) found not to help.
BERT: dict[str, tuple[int, int, int, Head]] = {
    "base": (12, 768, 12, Pretraining()),
    "large": (24, 1024, 16, Pretraining()),
    "tiny": (2, 128, 2, Pretraining()),
    "mini": (4, 256, 4, Pretraining()),
    "small": (4, 512, 8, Pretraining()),
    "medium": (8, 512, 8, Pretraining()),
    "tiny-masked": (2, 128, 2, MaskedToken()),
    "mini-masked": (4, 256, 4, MaskedToken()),
}


def bert(size: str = "base") -> ModelConfig:
    layers, width, heads, head = numbers(BERT, "bert", size)
    return ModelConfig(
        name=f"bert-{size}",
        vocabulary=30_522,
        length=512,
        layers=layers,
        width=width,
        heads=heads,
        hidden=4 * width,
        residual="post",
        activation="gelu",
        position=Learned(),
        patterns=(Full(),),
        head=head,
        norm=LayerNorm(epsilon=1e-12),
        embedding_norm=LayerNorm(epsilon=1e-12),
        segments=2,
        dropout=Dropout(embedding=0.1, attention=0.1, residual=0.1),
        init="normal",
    )
