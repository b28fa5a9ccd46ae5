"""GPT-2 (Radford et al. 2019): a pre-norm decoder."""

from clearformer.config import Causal, Dropout, KVCache, Learned, ModelConfig, NextToken
from clearformer.families.sizes import numbers

# layers, width, heads: table 2 of the paper; heads from the released models (64 wide each).
GPT2 = {
    "small": (12, 768, 12),
    "medium": (24, 1024, 16),
    "large": (36, 1280, 20),
    "xl": (48, 1600, 25),
}


def gpt2(size: str = "small") -> ModelConfig:
    layers, width, heads = numbers(GPT2, "gpt2", size)
    return ModelConfig(
        name=f"gpt2-{size}",
        family="gpt2",
        vocabulary=50_257,
        length=1024,
        layers=layers,
        width=width,
        heads=heads,
        hidden=4 * width,
        residual="pre",
        activation="gelu_tanh",
        position=Learned(),
        patterns=(Causal(),),
        head=NextToken(tied=True),
        cache=KVCache(),
        dropout=Dropout(embedding=0.1, attention=0.1, residual=0.1),
        init="gpt2",
    )
