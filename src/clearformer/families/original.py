"""The original encoder-decoder (Vaswani et al. 2017, "Attention is all you need")."""

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
ORIGINAL = {
    "base": (6, 512, 8, 2048, 0.1),
    "big": (6, 1024, 16, 4096, 0.3),
    # Not published: for corpora of tens of thousands of pairs.
    "small": (4, 256, 4, 1024, 0.1),
}


def original(size: str = "base") -> Seq2SeqConfig:
    layers, width, heads, hidden, dropout = numbers(ORIGINAL, "original", size)
    return Seq2SeqConfig(
        name=f"original-{size}",
        vocabulary=37_000,
        length=512,
        layers=layers,
        decoder_layers=layers,
        width=width,
        heads=heads,
        hidden=hidden,
        residual="post",
        activation="relu",
        position=Sinusoidal(),
        patterns=(Causal(),),
        head=NextToken(tied=True),
        past=KVCache(),
        embedding_scale="sqrt_width",
        # The paper writes its projections as bare matrices, its feed-forward layer with biases.
        biases=Biases(attention=False, attention_output=False),
        dropout=Dropout(embedding=dropout, residual=dropout),
        init="xavier",
    )
