"""The first seed's classifier: a few post-norm blocks, averaged, then one linear layer."""

from clearformer.config import (
    Biases,
    Classifier,
    Full,
    Learned,
    ModelConfig,
)
from clearformer.families.sizes import numbers

# layers, width, heads, length. The seed: "at depth 6, with a maximum sequence length of 512";
# width, heads and vocabulary are those of the experiment that it links to (pbloem/former).
CLASSIFIER = {"imdb": (6, 128, 8, 512)}


def classifier(size: str = "imdb") -> ModelConfig:
    layers, width, heads, length = numbers(CLASSIFIER, "classifier", size)
    return ModelConfig(
        name=f"classifier-{size}",
        vocabulary=50_000,
        length=length,
        layers=layers,
        width=width,
        heads=heads,
        hidden=4 * width,
        residual="post",
        activation="relu",
        position=Learned(),
        patterns=(Full(),),
        head=Classifier(classes=2, pool="mean"),
        biases=Biases(attention=False),
        init="torch_default",
    )
