"""The original encoder-decoder (Vaswani et al. 2017, "Attention is all you need")."""

from typing import Literal

from clearformer.config import (
    Biases,
    Causal,
    Dropout,
    KVCache,
    NextToken,
    Seq2SeqConfig,
    Sinusoidal,
)
from clearformer.families.sizes import numbers

# layers (of each stack), width, heads, hidden, dropout: table 3 of the paper. The vocabulary
# of about 37,000 joint byte pairs is that of section 5.1.
Numbers = tuple[int, int, int, int, float, int, int, Literal["pre", "post"]]
ORIGINAL: dict[str, Numbers] = {
    # layers, width, heads, hidden, dropout, vocabulary, length, residual
    "base": (6, 512, 8, 2048, 0.1, 37_000, 512, "post"),
    "big": (6, 1024, 16, 4096, 0.3, 37_000, 512, "post"),
    # Not published. Pre-norm trains without a long warm-up: for tens of thousands of pairs (Wu et
    # al. 2021 found this shape to serve Multi30k as well as larger ones),
    "small": (4, 128, 4, 256, 0.2, 5000, 256, "pre"),
    # and for tasks with an exact answer.
    "tiny": (2, 128, 4, 512, 0.1, 400, 128, "pre"),
}


def original(size: str = "base") -> Seq2SeqConfig:
    layers, width, heads, hidden, dropout, vocabulary, length, residual = numbers(
        ORIGINAL, "original", size
    )
    return Seq2SeqConfig(
        name=f"original-{size}",
        family="original",
        vocabulary=vocabulary,
        length=length,
        layers=layers,
        decoder_layers=layers,
        width=width,
        heads=heads,
        hidden=hidden,
        residual=residual,
        activation="relu",
        position=Sinusoidal(),
        patterns=(Causal(),),
        head=NextToken(tied=True),
        cache=KVCache(),
        embedding_scale="sqrt_width",
        # The paper writes its projections as bare matrices, its feed-forward layer with biases.
        biases=Biases(attention=False, attention_output=False),
        dropout=Dropout(embedding=dropout, residual=dropout),
        init="xavier",
    )
