"""The first source document's generator: causal blocks that predict the next byte."""

from clearformer.config import Biases, Causal, KVCache, Learned, ModelConfig, NextToken
from clearformer.families.sizes import numbers

# layers, width, heads, length. The seed: "sequences of length 256, using a model of 12
# transformer blocks and 256 embedding dimension"; 8 heads in the experiment that it links to.
GENERATOR = {"enwik8": (12, 256, 8, 256)}


def generator(size: str = "enwik8") -> ModelConfig:
    layers, width, heads, length = numbers(GENERATOR, "generator", size)
    return ModelConfig(
        name=f"generator-{size}",
        family="generator",
        vocabulary=256,
        length=length,
        layers=layers,
        width=width,
        heads=heads,
        hidden=4 * width,
        residual="post",
        activation="relu",
        position=Learned(),
        patterns=(Causal(),),
        head=NextToken(tied=False),
        cache=KVCache(),
        biases=Biases(attention=False, head=True),
        init="torch_default",
    )
