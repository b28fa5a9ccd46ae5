"""A Llama-like decoder: rotary positions, RMS norms, gated feed-forward layers, no biases.

RMSNorm: Zhang and Sennrich 2019. SwiGLU: Shazeer 2020. Rotary: Su et al. 2021. Grouped
queries: Ainslie et al. 2023. Query-key norm: Henry et al. 2020. The combination is Llama's
(Touvron et al. 2023) with the query-key norm of later models.
"""

from clearformer.config import (
    Biases,
    Causal,
    KVCache,
    ModelConfig,
    NextToken,
    RMSNorm,
    Rotary,
)
from clearformer.families.sizes import numbers

# layers, width, heads, key heads (none: as many), hidden, length. Sizes of our own; hidden is
# about 8/3 of the width, so that three matrices cost what two of 4 * width did.
MODERN: dict[str, tuple[int, int, int, int | None, int, int]] = {
    "small": (12, 256, 4, None, 704, 256),
    "tiny": (4, 128, 4, None, 352, 256),
    "medium": (12, 512, 8, 4, 1408, 512),
    "large": (24, 1024, 16, 4, 2816, 1024),
}


def modern(size: str = "small") -> ModelConfig:
    layers, width, heads, key_heads, hidden, length = numbers(MODERN, "modern", size)
    return ModelConfig(
        name=f"modern-{size}",
        family="modern",
        vocabulary=256,
        length=length,
        layers=layers,
        width=width,
        heads=heads,
        key_heads=key_heads,
        hidden=hidden,
        residual="pre",
        activation="swiglu",
        position=Rotary(),
        patterns=(Causal(),),
        head=NextToken(tied=False),
        cache=KVCache(),
        norm=RMSNorm(),
        query_key_norm=RMSNorm(),
        biases=Biases(attention=False, attention_output=False, feed_forward=False),
        init="modern",
    )
